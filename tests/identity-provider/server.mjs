// An OpenID Connect provider for tests: node server.mjs REDIRECT_URI...
//
// It prints its issuer once it listens. Everybody may log in under any name, and the groups of a user are in the name:
// `jane+sre` is jane in the group sre. POST /rotate replaces the key with which it signs, POST /forget ends all sessions.
import { createServer } from "node:http";
import { generateKeyPair, randomUUID } from "node:crypto";
import { promisify } from "node:util";
import { Provider } from "oidc-provider";

const redirectUris = process.argv.slice(2);
const audience = "https://everwatch.example.org";
const ttl = Number(process.env.TOKEN_SECONDS ?? 300);
const groupsOf = (account) => account.split("+").slice(1);

async function newKey() {
  const { privateKey } = await promisify(generateKeyPair)("rsa", { modulusLength: 2048 });
  return { ...privateKey.export({ format: "jwk" }), kid: randomUUID(), use: "sig" };
}

function provider(issuer, key) {
  const secret = "the secret of the client";
  const common = { client_secret: secret, id_token_signed_response_alg: "RS256" };
  return new Provider(issuer, {
    jwks: { keys: [key] },
    clients: [
      { ...common, client_id: "console", redirect_uris: redirectUris, grant_types: ["authorization_code"] },
      { ...common, client_id: "ci", redirect_uris: [], response_types: [], grant_types: ["client_credentials"] },
    ],
    cookies: { keys: [randomUUID()] },
    pkce: { required: () => true },
    conformIdTokenClaims: false,
    claims: { openid: ["sub"], profile: ["preferred_username", "groups"] },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, preferred_username: id.split("+")[0], groups: groupsOf(id) }),
    }),
    extraTokenClaims: (_, token) => (token.clientId === "ci" ? { groups: ["deploy"] } : undefined),
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => undefined,
        getResourceServerInfo: () => ({
          scope: "api", audience, accessTokenTTL: ttl, accessTokenFormat: "jwt", jwt: { sign: { alg: "PS256" } },
        }),
      },
    },
    ttl: { IdToken: ttl, AuthorizationCode: 60, Grant: 600, Interaction: 600, Session: 600 },
  });
}

let key, handle;
const server = createServer(async (request, response) => {
  const isAsked = request.method === "POST" && ["/rotate", "/forget"].includes(request.url);
  if (!isAsked) return handle(request, response);
  if (request.url === "/rotate") key = await newKey();
  // With other keys for its cookies, it knows nobody.
  handle = provider(issuer, key).callback();
  response.end();
});
await new Promise((listens) => server.listen(0, "127.0.0.1", listens));
const issuer = `http://127.0.0.1:${server.address().port}`;
key = await newKey();
handle = provider(issuer, key).callback();
process.stdout.write(`${issuer}\n`);
