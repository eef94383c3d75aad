//! A headless Chromium with its own chromedriver; dropping it ends both. Independent of the console's views.

use everwatch_tests::cluster::{everwatch, free_address};
use everwatch_tests::http::Api;
use everwatch_tests::wait::wait_for;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Flags for Chromium. The last two keep it quiet on a machine with two cores, and end it when its driver
/// ends.
const FLAGS: [&str; 13] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,860",
    "--hide-scrollbars",
    "--disable-extensions",
    "--remote-debugging-pipe",
];

/// One window.
pub(crate) struct Browser {
    client: Client,
    driver: Child,
    _profile: TempDir,
}

impl Browser {
    /// Opens the console of this manager.
    pub(crate) async fn open(url: &str) -> Self {
        let address = free_address();
        let (_, port) = address.rsplit_once(':').unwrap();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("chromedriver: {error}; ./tests/run installs it"));
        let at = Api::new(format!("http://{address}"));
        wait_for("chromedriver to be ready", || async {
            match at.try_call("GET", "/status", None).await {
                Ok((200, _)) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        let profile = tempfile::Builder::new().prefix("everwatch-browser").tempdir().unwrap();
        let mut flags = FLAGS.map(str::to_owned).to_vec();
        flags.push(format!("--user-data-dir={}", profile.path().display()));
        let wanted = json!({"browserName": "chrome", "goog:chromeOptions": {"args": flags},
            "goog:loggingPrefs": {"browser": "ALL"}});
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(wanted.as_object().unwrap().clone())
            .connect(&at.url)
            .await
            .unwrap();
        client.goto(url).await.unwrap();
        Self { client, driver, _profile: profile }
    }

    /// Goes to a view of the page that is open.
    pub(crate) async fn view(&self, hash: &str) {
        self.run(&format!("location.hash = {}", json!(hash))).await;
    }

    pub(crate) async fn run(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Reloads the page. Returns how many ms later the expression was true.
    pub(crate) async fn reopened(&self, expression: &str) -> f64 {
        self.client.refresh().await.unwrap();
        let script = format!(
            "const [done] = arguments;
             const look = () => (({expression}) ? done(performance.now()) : requestAnimationFrame(look));
             look();"
        );
        let seen = self.client.execute_async(&script, Vec::new()).await;
        seen.unwrap_or_else(|error| panic!("{expression}: {error}")).as_f64().unwrap()
    }

    /// Runs a script with two arguments: a text, and a function that the script calls with a number.
    pub(crate) async fn ask(&self, script: &str, text: &str) -> f64 {
        let answer = self.client.execute_async(script, vec![text.into()]).await;
        answer.unwrap_or_else(|error| panic!("{text}: {error}")).as_f64().unwrap()
    }

    /// Runs a script whose last argument is a function that the script calls with its answer.
    pub(crate) async fn run_async(&self, script: &str) -> Value {
        self.client
            .execute_async(script, Vec::new())
            .await
            .unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Waits until the expression is true in the page. An expression about something that is not there yet is not true.
    pub(crate) async fn until(&self, what: &str, expression: &str) {
        let look = format!(
            "let is = false, why = ''; try {{ is = Boolean({expression}); }} catch (error) {{ why = `${{error}}\\n`; }}
            return [is, why + location.href + '\\n' + document.body.innerText];"
        );
        wait_for(what, || async {
            let seen = self.run(&look).await;
            if seen[0] == true { Ok(()) } else { Err(seen[1].as_str().unwrap_or_default().to_owned()) }
        })
        .await;
    }

    /// Waits until an element shows this text.
    pub(crate) async fn until_text(&self, css: &str, text: &str) {
        let expression =
            format!("document.querySelector({})?.innerText.includes({})", json!(css), json!(text));
        self.until(&format!("{css} to say {text}"), &expression).await;
    }

    /// Clicks the button or link with this text, once it is there.
    pub(crate) async fn press(&self, text: &str) {
        let path = format!("//*[self::button or self::a][normalize-space()=\"{text}\"]");
        self.click(Locator::XPath(&path)).await;
    }

    pub(crate) async fn click(&self, at: Locator<'_>) {
        wait_for(&format!("a click on {at:?}"), || async {
            let found = self.client.find(at).await.map_err(|error| error.to_string())?;
            found.click().await.map_err(|error| error.to_string())
        })
        .await;
    }

    /// Presses the button that carries out what the dialog asks, once it is there.
    pub(crate) async fn confirm(&self) {
        self.click(Locator::Css("#dialog button[value=yes]")).await;
    }

    /// Types into a field, once it is there.
    pub(crate) async fn write(&self, css: &str, text: &str) {
        // A page that is drawn anew replaces the field before the browser has typed anything.
        wait_for(&format!("{css} to take {text:?}"), || async {
            let field = self.client.find(Locator::Css(css)).await.map_err(|error| error.to_string())?;
            field.send_keys(text).await.map_err(|error| error.to_string())
        })
        .await;
    }

    /// Replaces the content of a field, once it is there.
    pub(crate) async fn fill(&self, css: &str, text: &str) {
        self.until(css, &format!("document.querySelector('{css}')")).await;
        let set = format!("const it = document.querySelector('{css}'); it.value = '{text}';");
        self.run(&format!("{set} it.dispatchEvent(new Event('input', {{ bubbles: true }}));")).await;
    }

    /// Makes the window as narrow as a phone, or as narrow as the browser allows.
    pub(crate) async fn narrow(&self) {
        self.client.set_window_size(390, 844).await.unwrap();
    }

    /// Saves a screenshot under the target folder.
    pub(crate) async fn screenshot(&self, name: &str) {
        let folder = everwatch().parent().and_then(|it| it.parent()).map(PathBuf::from).unwrap();
        let folder = folder.join("screenshots");
        std::fs::create_dir_all(&folder).unwrap();
        let png = self.client.screenshot().await.unwrap();
        std::fs::write(folder.join(format!("{name}.png")), png).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _gone = self.driver.kill();
        let _gone = self.driver.wait();
    }
}
