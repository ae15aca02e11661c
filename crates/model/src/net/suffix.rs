//! Domains below which unrelated owners have names, so that a wildcard would be too wide (A09).
//!
//! The public suffix list contains the registries, and services that asked to be listed. This module
//! lists some other services. If a service is in neither list, its wildcard is accepted as the author
//! of the rule wrote it.

use psl::{List, Psl as _, Type};

const REGISTRY: &str = "anyone can register a name there";
const SERVICE: &str = "every customer of that service has a name there";

/// Returns why the wildcard `*.` before this name would match names of unrelated owners, or `None`.
pub(super) fn open_to_strangers(name: &str) -> Option<&'static str> {
    if !name.contains('.') {
        return Some(REGISTRY);
    }
    match public_suffix(name) {
        Some(Type::Icann) => Some(REGISTRY),
        Some(Type::Private) => Some(SERVICE),
        None => (TENANTS.contains(&name) || is_bucket_host(name)).then_some(SERVICE),
    }
}

/// Returns the section of the public suffix list with a rule for this name or all names below it.
///
/// A rule such as `*.ck` makes each name below `ck` a suffix, and exceptions such as `!www.ck` exclude
/// one name. No rule has a star as a label, so a lookup with a star finds the rule for every name.
fn public_suffix(name: &str) -> Option<Type> {
    let labels = || name.as_bytes().rsplit(|byte| *byte == b'.');
    let (here, below) = (List.find(labels()), List.find(labels().chain([&b"*"[..]])));
    let is_suffix = here.len == name.len();
    let is_parent = below.len == name.len() + ".*".len();
    here.typ.filter(|_| is_suffix).or(below.typ.filter(|_| is_parent))
}

/// Returns whether a name is an AWS host with buckets or gateways: `s3.eu-west-1.amazonaws.com`,
/// `s3-website-…`, `execute-api.…`, `elb.…`, with or without a region.
fn is_bucket_host(name: &str) -> bool {
    name == "amazonaws.com"
        || name == "amazonaws.com.cn"
        || name
            .strip_suffix(".amazonaws.com")
            .or_else(|| name.strip_suffix(".amazonaws.com.cn"))
            .is_some_and(|rest| rest.split('.').count() <= 3)
}

/// The domains of services that give each customer a subdomain and are missing in the public suffix
/// list.
const TENANTS: &[&str] = &[
    "app.github.dev",
    "netlify.com",
    "r2.cloudflarestorage.com",
    "cloudflarestorage.com",
    "cfargotunnel.com",
    "herokussl.com",
    "fly.io",
    "render.com",
    "railway.app",
    "glitch.me",
    "stackblitz.io",
    "webcontainer.io",
    "codesandbox.io",
    "gitpod.io",
    "firebaseio.com",
    "storage.googleapis.com",
    "googleusercontent.com",
    "cloudapp.azure.com",
    "queue.core.windows.net",
    "table.core.windows.net",
    "windows.net",
    "core.windows.net",
    "database.windows.net",
    "openai.azure.com",
    "cognitiveservices.azure.com",
    "on.aws",
    "backblazeb2.com",
    "wasabisys.com",
    "oraclecloud.com",
    "aliyuncs.com",
    "myqcloud.com",
    "fastly.net",
    "b-cdn.net",
    "cdn77.org",
    "loca.lt",
    "localtunnel.me",
    "serveo.net",
    "lhr.life",
    "localhost.run",
    "pinggy.link",
    "bore.digital",
    "webhook.site",
    "requestcatcher.com",
    "pipedream.net",
    "beeceptor.com",
    "interact.sh",
    "oast.pro",
    "oast.live",
    "oast.site",
    "oast.online",
    "oast.fun",
    "oast.me",
    "burpcollaborator.net",
    "oastify.com",
    "nip.io",
    "sslip.io",
    "xip.io",
    "freedns.org",
    "neon.tech",
    "wordpress.com",
    "tumblr.com",
    "medium.com",
    "substack.com",
    "weebly.com",
    "zendesk.com",
    "slack.com",
    "atlassian.net",
    "sharepoint.com",
    "my.salesforce.com",
    "force.com",
    "ingest.sentry.io",
    "sentry.io",
    "in.applicationinsights.azure.com",
    "rtfd.io",
    "modal.run",
    "e2b.dev",
    "daytona.app",
    "vercel.sh",
    "gradio.live",
    "hashnode.dev",
    "dev.tunnels.ms",
    "devtunnels.ms",
    "brs.devtunnels.ms",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_over_each_well_known_public_suffix_is_refused() {
        let names =
            "ac.uk co.uk gov.uk ltd.uk me.uk net.uk org.uk plc.uk sch.uk com.au net.au org.au
            edu.au gov.au id.au co.nz net.nz org.nz ac.jp co.jp go.jp ne.jp or.jp co.kr
            or.kr re.kr com.cn net.cn org.cn gov.cn com.hk org.hk com.tw org.tw com.sg
            edu.sg co.in firm.in gen.in ind.in net.in org.in ac.in gov.in co.za org.za
            web.za com.br net.br org.br gov.br com.mx org.mx com.ar org.ar com.co com.pe
            com.tr org.tr com.ua co.ua com.pl org.pl net.pl co.il org.il ac.il com.my com.ph
            co.th in.th or.th co.id or.id web.id com.vn com.sa com.eg com.ng co.ke or.ke
            com.gr com.pt com.es org.es com.ru msk.ru spb.ru co.at or.at com.de co.it
            asso.fr com.fr eu.org uk.com us.com eu.com de.com gb.net in-addr.arpa ip6.arpa
            github.io githubusercontent.com githubpreview.dev gitlab.io bitbucket.io
            codeberg.page netlify.app vercel.app vercel.dev now.sh pages.dev workers.dev
            r2.dev trycloudflare.com herokuapp.com fly.dev onrender.com up.railway.app
            deno.dev deno.net surge.sh repl.co replit.dev replit.app csb.app appspot.com
            run.app a.run.app web.app firebaseapp.com cloudfunctions.net googleapis.com
            blogspot.com withgoogle.com cloud.goog translate.goog azurewebsites.net
            azurestaticapps.net azureedge.net azurefd.net azure-api.net cloudapp.net
            blob.core.windows.net file.core.windows.net web.core.windows.net
            trafficmanager.net servicebus.windows.net cloudfront.net awsapprunner.com
            lambda-url.us-east-1.on.aws elasticbeanstalk.com amplifyapp.com
            digitaloceanspaces.com ondigitalocean.app linodeobjects.com customer-oci.com
            fastlylb.net edgekey.net akamaized.net akamaihd.net ngrok.io ngrok.app
            ngrok-free.app ngrok-free.dev ngrok.dev ts.net dyndns.org duckdns.org no-ip.org
            ddns.net hf.space streamlit.app supabase.co supabase.in myshopify.com
            notion.site wixsite.com readthedocs.io e2b.app my.id js.org is-a.dev lovable.app
            bolt.host";
        for name in names.split_whitespace().chain(TENANTS.iter().copied()) {
            assert!(open_to_strangers(name).is_some(), "{name}");
        }
    }

    #[test]
    fn wildcard_check_follows_stars_and_exceptions_of_the_public_suffix_list() {
        for (name, expected) in [
            ("co.uk", Some(REGISTRY)),
            ("github.io", Some(SERVICE)),
            ("xn--55qx5d.cn", Some(REGISTRY)),
            // The rule `*.ck` and its exception `!www.ck`.
            ("ck", Some(REGISTRY)),
            ("foo.ck", Some(REGISTRY)),
            ("www.ck", None),
            ("a.foo.ck", None),
            ("kawasaki.jp", Some(REGISTRY)),
            ("city.kawasaki.jp", None),
            // Only names below this domain are suffixes.
            ("compute.amazonaws.com", Some(SERVICE)),
            ("bd", Some(REGISTRY)),
            ("mine.github.io", None),
            ("example.com", None),
            ("example.invented-top-level", None),
            ("internal", Some(REGISTRY)),
        ] {
            assert_eq!(open_to_strangers(name), expected, "{name}");
        }
    }

    #[test]
    fn wildcard_over_every_regional_bucket_host_is_refused() {
        for name in ["amazonaws.com", "s3.eu-west-1.amazonaws.com", "a.b.c.amazonaws.com.cn"] {
            assert_eq!(open_to_strangers(name), Some(SERVICE), "{name}");
        }
        assert_eq!(open_to_strangers("a.b.c.d.amazonaws.com"), None);
    }
}
