//! Clients that fetch a URL with a token. A new client needs one line in `clients!`.

use belljar_testkit::Reply;

use super::{ClientCase, DENIED_HOST, client_lab, declare_secret, upstream};

const HOST: &str = "api.example.com";

/// The file names and contents of programs that clients run in the workspace.
const PROGRAMS: [(&str, &str); 5] = [
    ("fetch.py", include_str!("fetch.py")),
    ("fetch.mjs", include_str!("fetch.mjs")),
    ("Fetch.java", include_str!("Fetch.java")),
    ("fetch.rb", include_str!("fetch.rb")),
    ("fetch.pl", include_str!("fetch.pl")),
];

/// Defines one test per client: its name and the body of a bash function that fetches `$1`.
macro_rules! clients {
    ($($name:ident: $fetch:expr,)*) => { $(
        #[test]
        fn $name() {
            check($fetch);
        }
    )* };
}

clients! {
    curl_sends_a_placeholder_and_receives_no_secret: r#"curl -sSfi -H "Authorization: Bearer $API_TOKEN" "$1""#,
    curl_with_basic_authentication_sends_a_placeholder_and_receives_no_secret: r#"curl -sSf --http1.1 -u "me:$API_TOKEN" "$1""#,
    wget_sends_a_placeholder_and_receives_no_secret: r#"wget -qO- --header "Authorization: Bearer $API_TOKEN" "$1""#,
    python_urllib_sends_a_placeholder_and_receives_no_secret: r#"python3 fetch.py urllib "$1""#,
    python_requests_sends_a_placeholder_and_receives_no_secret: r#"PYTHONPATH=/opt/clients/python python3 fetch.py requests "$1""#,
    python_httpx_sends_a_placeholder_and_receives_no_secret: r#"PYTHONPATH=/opt/clients/python python3 fetch.py httpx "$1""#,
    python_aiohttp_sends_a_placeholder_and_receives_no_secret: r#"PYTHONPATH=/opt/clients/python python3 fetch.py aiohttp "$1""#,
    node_fetch_sends_a_placeholder_and_receives_no_secret: r#"node fetch.mjs "$1""#,
    deno_fetch_sends_a_placeholder_and_receives_no_secret: r#"DENO_NO_UPDATE_CHECK=1 /opt/clients/npm/node_modules/.bin/deno run -A fetch.mjs "$1""#,
    bun_fetch_sends_a_placeholder_and_receives_no_secret: r#"/opt/clients/npm/node_modules/.bin/bun fetch.mjs "$1""#,
    java_http_client_sends_a_placeholder_and_receives_no_secret: r#"java Fetch.java "$1""#,
    ruby_net_http_sends_a_placeholder_and_receives_no_secret: r#"ruby fetch.rb "$1""#,
    perl_lwp_sends_a_placeholder_and_receives_no_secret: r#"perl fetch.pl "$1""#,
    openssl_s_client_sends_a_placeholder_and_receives_no_secret: r#"host=${1#https://}; host=${host%%/*}
        printf 'GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n' "/${1#https://*/}" "$host" "$API_TOKEN" |
        openssl s_client -quiet -ign_eof -verify_return_error -connect "$host:443" -servername "$host""#,
}

/// Checks a client, given as the body of a bash function that fetches `$1`.
#[track_caller]
fn check(fetch: &str) {
    let (lab, authority, canary) = client_lab();
    for (name, text) in PROGRAMS {
        lab.write(name, text);
    }
    let answer = format!("got it: {}", canary.repeated());
    let upstream = upstream(&authority, &[HOST], &[HOST], &canary, move |received| {
        assert_eq!(received.path, "/v1/thing?x=1");
        Reply::new(200, answer.clone())
            .header("x-repeated", &answer)
            .header("content-type", "text/plain")
    });
    let call = |host: &str| format!("fetch() {{ {fetch}\n}}\nfetch 'https://{host}/v1/thing?x=1'");
    let case = ClientCase {
        secret: "api",
        declared: &declare_secret(&[HOST]),
        presets: &[],
        preset_hosts: &[],
        own_hosts: &[HOST],
        script: &call(HOST),
        denied_script: &call(DENIED_HOST),
    };
    case.check(&lab, &authority, &canary, &upstream);
}
