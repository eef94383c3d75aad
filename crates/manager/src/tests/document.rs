//! The OpenAPI document: complete, with examples that hold. That answers keep to it is seen in every other test.

use super::contract::Contract;
use super::*;
use everwatch_api::Outcomes;
use std::collections::BTreeSet;

async fn contract(stage: &Stage) -> Contract {
    Contract::new(stage.get("/openapi.json").await.body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_says_what_it_is_for_and_under_which_name() {
    let contract = contract(&Stage::new().await).await;
    let mut names = BTreeSet::new();
    for (method, path, operation) in contract.operations() {
        let told = format!("{method} {path}");
        let text = |member: &str| operation[member].as_str().unwrap_or_default();
        assert!(!text("operationId").is_empty() && names.insert(text("operationId")), "{told}: operationId");
        let summary = text("summary");
        assert!(
            !summary.is_empty() && !summary.contains('\n'),
            "{told}: a summary of one line, not {summary:?}"
        );
        assert_eq!(operation["tags"].as_array().map(Vec::len), Some(1), "{told}: one tag");
    }
    assert!(names.len() > 30, "{names:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_body_has_an_example_that_its_schema_takes() {
    let contract = contract(&Stage::new().await).await;
    for (method, path, operation) in contract.operations() {
        let contents = operation["requestBody"]["content"].as_object().into_iter().flatten();
        for (media_type, content) in contents {
            let told = format!("the request of {method} {path}");
            let example = content.get("example").unwrap_or_else(|| panic!("{told} has no example"));
            let place = [path, method, "requestBody", "content", media_type];
            contract.check_body(&place, example).unwrap_or_else(|error| panic!("{told}: {error}"));
        }
        for (status, response) in operation["responses"].as_object().unwrap() {
            let told = format!("{status} of {method} {path}");
            let contents = response["content"].as_object();
            assert!(contents.is_some() != matches!(status.as_str(), "204" | "303" | "304"), "{told}: a body");
            for (media_type, content) in contents.into_iter().flatten() {
                let place = [path, method, "responses", status, "content", media_type];
                let named = content["examples"].as_object().into_iter().flatten();
                let examples: Vec<&Value> =
                    content.get("example").into_iter().chain(named.map(|(_, it)| &it["value"])).collect();
                assert!(!examples.is_empty(), "{told} as {media_type} has no example");
                for example in examples {
                    contract.check_body(&place, example).unwrap_or_else(|error| panic!("{told}: {error}"));
                }
            }
        }
    }
}

/// Words of a code in the description of an answer: `name-exists, observer-deleted: why`.
fn codes(description: &str) -> BTreeSet<&str> {
    let words = description.split(|c: char| !c.is_ascii_lowercase() && c != '-');
    words.filter(|it| it.contains('-') || matches!(*it, "invalid" | "internal" | "stopping")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_problem_of_an_operation_is_told_with_an_example() {
    let contract = contract(&Stage::new().await).await;
    for (method, path, operation) in contract.operations() {
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.contains_key("500"), "{method} {path}");
        for (status, response) in responses.iter().filter(|(status, _)| status.starts_with(['4', '5'])) {
            let told = format!("{status} of {method} {path}: {response}");
            let examples = response["content"]["application/problem+json"]["examples"].as_object();
            let examples = examples.unwrap_or_else(|| panic!("{told}"));
            let keys: BTreeSet<&str> = examples.keys().map(String::as_str).collect();
            assert_eq!(keys, codes(response["description"].as_str().unwrap()), "{told}");
            for (code, example) in examples {
                let shown = &example["value"];
                assert_eq!(
                    (&shown["code"], shown["status"].to_string()),
                    (&json!(code), status.clone()),
                    "{told}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_of_a_body_stands_for_an_operation_of_today() {
    let contract = contract(&Stage::new().await).await;
    let examples: Value = serde_json::from_str(include_str!("../http/examples.json")).unwrap();
    let ids: BTreeSet<&str> =
        contract.operations().filter_map(|(_, _, operation)| operation["operationId"].as_str()).collect();
    for place in examples["operations"].as_object().unwrap().keys() {
        assert!(ids.contains(place.split(' ').next().unwrap()), "{place}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_manager_takes_the_bodies_that_it_shows() {
    let stage = Stage::new().await;
    let contract = contract(&stage).await;
    let shown = |method: &str, path: &str| {
        let (_, operation) = contract.operation(method, path).unwrap();
        operation["requestBody"]["content"].as_object().unwrap().values().next().unwrap()["example"]
            .to_string()
    };
    let _service = stage.named_service("service-1", 1).await;
    let put = stage.send("PUT", "/v1/safe-mode", Some(&shown("PUT", "/v1/safe-mode"))).await;
    assert_eq!(put.status, StatusCode::OK, "{}", put.body);
    for (method, path, status) in [
        ("POST", "/v1/services/service-1/drain", 202),
        ("PATCH", "/v1/services/service-1", 202),
        ("POST", "/v1/rebalance:plan", 200),
        ("POST", "/v1/rebalance:apply", 200),
        ("POST", "/v1/kinds/ticker/validate", 200),
    ] {
        let answer = stage.send(method, path, Some(&shown(method, path))).await;
        assert_eq!(answer.status.as_u16(), status, "{method} {path}: {}", answer.body);
    }
    // Without a service, no kind is refused.
    let stage = Stage::new().await;
    for (method, path, status) in [
        ("POST", "/v1/observers", 201),
        ("PUT", "/v1/observers/btc-price", 200),
        ("PATCH", "/v1/observers/btc-price", 200),
        ("POST", "/v1/observers/btc-price/move", 202),
    ] {
        let answer = stage.send(method, path, Some(&shown(method, path))).await;
        assert_eq!(answer.status.as_u16(), status, "{method} {path}: {}", answer.body);
    }
    let stage = Stage::new().await;
    let batch = stage.send("POST", "/v1/observers:batch", Some(&shown("POST", "/v1/observers:batch"))).await;
    assert_eq!(batch.read::<Outcomes>(200).items[0].status, 201, "{}", batch.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_document_knows_the_members_that_the_manager_reads() {
    let stage = Stage::new().await;
    let contract = contract(&stage).await;
    let refused = stage.create(json!({"kind": "ticker", "zzz": 1})).await;
    let detail = refused.refused(422, "invalid").errors.remove(0).detail;
    let mut read: BTreeSet<&str> = detail.split_once("known: ").unwrap().1.split(", ").collect();
    read.insert("desired");
    for schema in ["NewObserver", "ObserverPatch"] {
        let told = contract.document["components"]["schemas"][schema]["properties"].as_object().unwrap();
        assert_eq!(told.keys().map(String::as_str).collect::<BTreeSet<_>>(), read, "{schema}");
    }
}
