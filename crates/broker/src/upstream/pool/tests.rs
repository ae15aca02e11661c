use super::*;

fn key(host: &str, port: u16, connect: Option<&str>) -> Key {
    let connect = connect.map(|connect| connect.parse().unwrap());
    Key { scheme: Scheme::Https, target: host.parse().unwrap(), port, connect }
}

/// Returns an HTTP connection that is ready for requests, and its other end.
async fn sender() -> (Sender, tokio::io::DuplexStream) {
    let (near, far) = tokio::io::duplex(1024);
    let mut sender = handshake_http1(TokioIo::new(near)).await.unwrap();
    if let Sender::One(sender) = &mut sender {
        sender.ready().await.unwrap();
    }
    (sender, far)
}

fn ago(time: Duration) -> Instant {
    Instant::now().checked_sub(time).expect("the machine has been up for longer")
}

#[tokio::test]
async fn a05_upstream_connection_is_reused_for_a_short_time_only() {
    let (pool, key) = (Pool::default(), key("api.example.com", 443, None));
    let (fresh, _far) = sender().await;
    pool.keep(key.clone(), Instant::now(), fresh);
    assert!(pool.take(&key).is_some(), "control: it is kept");
    assert!(pool.take(&key).is_none(), "and taken once");
    // At this age, the name can resolve to another address.
    let (old, _far) = sender().await;
    pool.keep(key.clone(), ago(MAX_AGE), old);
    assert!(pool.take(&key).is_none());
    let (idle, _far) = sender().await;
    let idle = Idle { created: ago(MAX_IDLE), since: ago(MAX_IDLE), sender: idle };
    pool.lock().entry(key.clone()).or_default().push(idle);
    assert!(pool.take(&key).is_none());
    let (ended, far) = sender().await;
    pool.keep(key.clone(), Instant::now(), ended);
    drop(far);
    tokio::task::yield_now().await;
    assert!(pool.take(&key).is_none(), "the server closed the connection");
}

#[tokio::test]
async fn a05_upstream_connection_is_reused_for_its_own_target_only() {
    let (pool, own) = (Pool::default(), key("api.example.com", 443, Some("192.0.2.1:443")));
    let (fresh, _far) = sender().await;
    pool.keep(own.clone(), Instant::now(), fresh);
    for other in [
        key("api.example.com", 443, None),
        key("api.example.com", 443, Some("192.0.2.2:443")),
        key("api.example.com", 8443, Some("192.0.2.1:443")),
        key("other.example.com", 443, Some("192.0.2.1:443")),
        Key { scheme: Scheme::Http, ..own.clone() },
    ] {
        assert!(pool.take(&other).is_none(), "{other:?}");
    }
    assert!(pool.take(&own).is_some());
}
