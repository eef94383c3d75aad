// Logging in with a token or at an identity provider: the browser then keeps the cookie of a session.
import { call, Refused } from "./api.js";
import { h } from "./dom.js";
import { identify } from "./session.js";

/** Shows the link to the identity provider, if the manager has one. */
async function offerSingleSignOn(link) {
  try { link.hidden = !(await call("GET", "/v1/session")).single_sign_on; } catch { /* the form for a token stays */ }
}

/** What a page shows instead of itself until the user has logged in; `why` is the refusal of the manager, and `done` runs
 * after the login. */
export function loginForm(why, done) {
  const field = h("input", { name: "token", type: "password", autocomplete: "current-password", required: true, id: "token", "aria-describedby": "login-error" });
  const single = h("p", { hidden: true, id: "single-sign-on" },
    h("a", { class: "button primary", href: "/v1/session/oidc" }, "Log in with single sign-on"));
  offerSingleSignOn(single);
  const told = h("p", { class: "bad", id: "login-error", role: "alert" });
  const submit = async (event) => {
    event.preventDefault();
    const input = event.target.elements.token;
    const error = document.getElementById("login-error");
    error.textContent = "";
    try {
      await call("POST", "/v1/session", undefined, { authorization: `Bearer ${input.value.trim()}` });
    } catch (refused) {
      error.textContent = refused.message;
      input.select();
      return;
    }
    if (await hasNoCookie()) {
      error.textContent = "The browser did not keep the session: open the console over https, or on localhost.";
      return;
    }
    done();
  };
  return h("section", { key: "login", class: "view login" },
    h("h1", {}, "Log in"),
    h("p", {}, why.startsWith("the token") ? `Your session has ended: ${why}.` : "Requests to this manager need a token."),
    single,
    h("form", { class: "box login-form", onsubmit: submit },
      h("label", { class: "field" }, h("span", {}, "Token"), field),
      told,
      h("button", { class: "button primary" }, "Log in")),
    h("p", { class: "fine" }, "An administrator creates tokens with ", h("code", {}, "everwatch token create NAME --role ROLE"), ". To create the first one, log in with the token in the file that ", h("code", {}, "auth.bootstrap_token_file"), " of the manager names."));
}

async function hasNoCookie() {
  try { await call("GET", "/v1/whoami"); return false; } catch (error) { return error instanceof Refused && error.status === 401; }
}

/** Shows the name of the user and a button that logs out. */
export async function showUser(place, left) {
  const who = await identify();
  place.replaceChildren();
  place.hidden = !who?.authentication;
  if (place.hidden) return;
  const name = document.createElement("span");
  name.textContent = `${who.name} · ${who.role}`;
  place.append(name);
  if (!who.session) return;
  const out = document.createElement("button");
  out.type = "button";
  out.className = "quiet";
  out.textContent = "Log out";
  out.onclick = async () => {
    try { await call("DELETE", "/v1/session"); } catch { /* the next request tells */ }
    left();
  };
  place.append(out);
}
