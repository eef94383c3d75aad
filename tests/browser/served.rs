//! The files of the console, as any HTTP client receives them.

use crate::browser::Browser;
use everwatch_tests::cluster::Cluster;
use reqwest::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH};

#[tokio::test]
async fn the_console_is_served_with_a_strict_policy_and_kept_by_its_tag() {
    let mut cluster = Cluster::new("served");
    cluster.manager().await;
    let client = reqwest::Client::new();
    for (path, media_type) in [
        ("/", "text/html"),
        ("/console/app.js", "text/javascript"),
        ("/console/css/tokens.css", "text/css"),
        ("/console/fonts/inter.woff2", "font/woff2"),
    ] {
        let url = format!("{}{path}", cluster.api.url);
        let answer = client.get(&url).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        let header = |name| answer.headers()[name].to_str().unwrap().to_owned();
        assert!(header(CONTENT_TYPE).starts_with(media_type), "{path}: {}", header(CONTENT_TYPE));
        assert_eq!(header(CACHE_CONTROL), "no-cache");
        let policy = header(CONTENT_SECURITY_POLICY);
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        let again = client.get(&url).header(IF_NONE_MATCH, header(ETAG)).send().await.unwrap();
        assert_eq!((again.status().as_u16(), again.text().await.unwrap().as_str()), (304, ""), "{path}");
    }
    let problem = cluster.api.refused("GET", "/console/none.js", None).await;
    assert_eq!((problem.status, problem.code.as_str()), (404, "no-such-route"), "{problem:?}");
}

#[tokio::test]
async fn the_api_is_browsed_at_docs_without_any_outside_request() {
    let mut cluster = Cluster::new("docs");
    cluster.manager().await;
    let page = Browser::open(&format!("{}/docs/", cluster.api.url)).await;
    // The page shows operations from the API document.
    page.until_text(".swagger-ui .info", "Everwatch").await;
    page.until_text(".swagger-ui", "Read a pool").await;
    let all = "return performance.getEntriesByType('resource').filter((it) => it.name.startsWith(location.origin)).length";
    assert!(page.run(all).await.as_u64().unwrap() > 3);
    let outside = "return performance.getEntriesByType('resource').filter((it) => /^https?:/.test(it.name) && !it.name.startsWith(location.origin)).length";
    assert_eq!(page.run(outside).await, 0);
    page.screenshot("docs").await;
}
