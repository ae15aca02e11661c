//! A WebSocket server that sends back the received credential, and then echoes all messages.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::Received;

/// Serves one WebSocket connection: passes the request head to `keep`, then echoes messages.
pub(super) async fn serve<S>(mut stream: S, mut keep: impl FnMut(Received)) -> std::io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let received = parse(&String::from_utf8_lossy(&head));
    let credential = received.header("authorization").unwrap_or("nothing").to_owned();
    keep(received);
    stream
        .write_all(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
              sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        )
        .await?;
    // Two fragments, so that no single frame contains the whole credential.
    let (first, second) = credential.as_bytes().split_at(credential.len() / 2);
    frame(&mut stream, 0x01, first).await?;
    frame(&mut stream, 0x80, second).await?;
    loop {
        let message = unmasked(&mut stream).await?;
        frame(&mut stream, 0x81, &message).await?;
    }
}

/// Serves one WebSocket connection: sends `length` bytes in one message while it reads as many bytes
/// after the head of the request, then sends a last message.
pub(super) async fn serve_both_ways<S>(mut stream: S, length: usize) -> std::io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    stream
        .write_all(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
              sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        )
        .await?;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let reading = async {
        let mut received = vec![0; length];
        reader.read_exact(&mut received).await.map(drop)
    };
    let writing = async {
        let size = u64::try_from(length).expect("a length").to_be_bytes();
        writer.write_all(&[&[0x82, 127], size.as_slice()].concat()).await?;
        writer.write_all(&vec![b'x'; length]).await?;
        writer.flush().await
    };
    tokio::try_join!(reading, writing)?;
    frame(&mut writer, 0x81, b"end").await
}

/// Sends one WebSocket frame without a mask.
async fn frame<S: AsyncWrite + Unpin>(
    stream: &mut S,
    first: u8,
    text: &[u8],
) -> std::io::Result<()> {
    let length = u8::try_from(text.len()).ok().filter(|length| *length < 126);
    let length = length.expect("a short message");
    stream.write_all(&[&[first, length], text].concat()).await?;
    stream.flush().await
}

/// Reads one WebSocket frame of the client and removes its mask.
async fn unmasked<S: AsyncRead + Unpin>(stream: &mut S) -> std::io::Result<Vec<u8>> {
    let mut head = [0; 6];
    stream.read_exact(&mut head).await?;
    let [_, length, mask @ ..] = head;
    assert!(length & 0x80 != 0, "client frame without a mask");
    let mut text = vec![0; usize::from(length & 0x7f)];
    stream.read_exact(&mut text).await?;
    text.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    Ok(text)
}

/// Parses the head of an HTTP request.
fn parse(head: &str) -> Received {
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    Received {
        method: first.next().unwrap_or_default(),
        path: first.next().unwrap_or_default(),
        version: first.next().unwrap_or_default(),
        sni: None,
        headers: headers.collect(),
        body: Vec::new(),
        trailers: Vec::new(),
    }
}
