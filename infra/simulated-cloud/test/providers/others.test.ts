import { createPrivateKey, generateKeyPairSync, type KeyObject } from "node:crypto";
import { writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { liveIn } from "../../../../test/azure/live-cloud.ts";
import { trust } from "../../../../test/support/trust.ts";
import type { Cloud } from "../../cloud.ts";
import { rs256 } from "../../jwt.ts";

let cloud: Cloud;
let folder: string;
beforeAll(async () => {
  ({ cloud } = await liveIn({ company: { subscriptions: [] } }));
  folder = await mkdtemp(join(tmpdir(), "authority-"));
  const authority = join(folder, "kubernetes.pem");
  writeFileSync(authority, configured("kubernetes").caCertificate!);
  trust(authority);
});
afterAll(async () => {
  await cloud?.stop();
  await rm(folder, { recursive: true });
});

const configured = (provider: string) => cloud.control.providers.configurations()[provider]!;

/** Sends a request and returns its status and response. An object is sent as JSON, a string unchanged. */
async function ask(
  address: string,
  method: string,
  body?: object | URLSearchParams,
  headers: Record<string, string> = {},
): Promise<{ status: number; body: Record<string, never> }> {
  const form = body instanceof URLSearchParams;
  const sent = body === undefined ? {} : { body: form ? body : JSON.stringify(body) };
  const type: Record<string, string> = form || body === undefined ? {} : { "content-type": "application/json" };
  const answer = await fetch(address, { method, ...sent, headers: { ...type, ...headers } });
  const text = await answer.text();
  return { status: answer.status, body: text === "" ? {} : JSON.parse(text) };
}

describe("HashiCorp Vault", () => {
  const call = (method: string, path: string, body?: object, token = configured("hashicorp").token!) =>
    ask(`${configured("hashicorp").address}/v1/${path}`, method, body, { "x-vault-token": token });

  test("writes only on top of the expected version", async () => {
    const data = { data: { value: "one" } };
    expect((await call("POST", "secret/data/cas", { ...data, options: { cas: 1 } })).status).toBe(400);
    expect((await call("POST", "secret/data/cas", { ...data, options: { cas: 0 } })).status).toBe(200);
    const { status, body } = await call("POST", "secret/data/cas", { ...data, options: { cas: 0 } });
    expect([status, body.errors]).toEqual([400, ["check-and-set parameter did not match the current version"]]);
  });

  test("returns the same error for a wrong token and a missing mount, and 404 for deleted data", async () => {
    expect((await call("GET", "secret/metadata/none", undefined, "wrong")).status).toBe(403);
    expect((await call("GET", "sys/internal/ui/mounts/nothing")).status).toBe(403);
    await call("POST", "secret/data/gone", { data: { value: "one" } });
    await call("DELETE", "secret/data/gone");
    expect((await call("GET", "secret/data/gone")).status).toBe(404);
    expect((await call("GET", "secret/metadata/gone")).status).toBe(200);
    await call("POST", "secret/undelete/gone", { versions: [1] });
    expect((await call("GET", "secret/data/gone")).status).toBe(200);
  });

  test("rejects metadata over 512 bytes, and role logins with the cause", async () => {
    const noted = await call("POST", "secret/metadata/long", { custom_metadata: { note: "x".repeat(513) } });
    expect(noted.status).toBe(400);
    const { roleId } = cloud.control.providers.hashicorp.credentials;
    const signIn = await call("POST", "auth/approle/login", { role_id: roleId, secret_id: "wrong" });
    expect([signIn.status, signIn.body.errors]).toEqual([400, ["invalid secret id"]]);
  });
});

describe("Kubernetes", () => {
  const secretOf = (name: string, value: string, metadata = {}) => ({
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name, ...metadata },
    data: { value: Buffer.from(value).toString("base64") },
  });
  const call = (method: string, path: string, body?: object, headers: Record<string, string> = {}) => {
    const { address, namespace, token } = configured("kubernetes");
    const authorization = { authorization: `Bearer ${token}` };
    return ask(`${address}/api/v1/namespaces/${namespace}/secrets${path}`, method, body, {
      ...authorization,
      ...headers,
    });
  };
  const apply = (name: string, body: object, query: string) =>
    call("PATCH", `/${name}?${query}`, body, { "content-type": "application/apply-patch+yaml" });
  const METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

  test("returns only metadata on request", async () => {
    await call("POST", "?fieldManager=one", secretOf("alone", "x"));
    const { body } = await call("GET", "/alone", undefined, { accept: METADATA });
    expect(body).toMatchObject({ kind: "PartialObjectMetadata", metadata: { managedFields: [{ manager: "one" }] } });
    expect(body).not.toHaveProperty("data");
    expect((await call("GET", "/alone")).body).toHaveProperty("data");
  });

  test("rejects applying another manager's fields, unless forced, and an outdated version", async () => {
    await call("POST", "?fieldManager=one", secretOf("fields", "x"));
    const refused = await apply("fields", secretOf("fields", "y"), "fieldManager=two");
    expect([refused.status, refused.body.reason]).toEqual([409, "Conflict"]);
    const past = secretOf("fields", "y", { resourceVersion: "1" });
    expect((await apply("fields", past, "fieldManager=two&force=true")).status).toBe(409);
    expect((await apply("fields", secretOf("fields", "y"), "fieldManager=two&force=true")).status).toBe(200);
    const { body } = await call("GET", "/fields", undefined, { accept: METADATA });
    const { managedFields } = body.metadata as unknown as { managedFields: object[] };
    expect(managedFields).toHaveLength(1);
    expect(managedFields).toMatchObject([{ manager: "two", fieldsV1: { "f:data": { "f:value": {} } } }]);
  });

  test("returns errors as a Status", async () => {
    await call("POST", "", secretOf("once", "x"));
    expect((await call("POST", "", secretOf("once", "x"))).body.reason).toBe("AlreadyExists");
    expect((await call("POST", "", secretOf("Wrong", "x"))).body.reason).toBe("Invalid");
    const { data: _, ...rest } = secretOf("text", "x");
    expect((await call("POST", "", { ...rest, data: { value: "no base64!" } })).body.reason).toBe("Invalid");
    expect((await call("PATCH", "/once", secretOf("once", "y"))).body.reason).toBe("UnsupportedMediaType");
    expect((await call("GET", "/once", undefined, { authorization: "Bearer x" })).body.reason).toBe("Unauthorized");
  });
});

/** Returns a JSON Web Token that the right key or another key signed. */
const signedBy = (key: KeyObject, claims: object) =>
  rs256({ typ: "JWT" }, { ...claims }, { id: "", privateKey: key, publicKey: key });
const ownKey = () => cloud.control.providers.githubApp().privateKey;

describe("Google", () => {
  const { privateKey: foreign } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const now = Math.floor(Date.now() / 1000);
  const origin = () => cloud.environment.GOOGLE_SECRET_MANAGER_ENDPOINT!;
  const claims = () => ({
    iss: cloud.control.providers.google.credentials.clientEmail,
    aud: `${origin()}/token`,
    scope: "https://www.googleapis.com/auth/cloud-platform",
    iat: now,
    exp: now + 600,
  });
  const signIn = (change: object, key = createPrivateKey(ownKey())) => {
    const form = { grant_type: "urn:ietf:params:oauth:grant-type:jwt-bearer" };
    const assertion = signedBy(key, { ...claims(), ...change });
    return ask(`${origin()}/token`, "POST", new URLSearchParams({ ...form, assertion }));
  };

  test("issues a token only for an assertion that the account signed", async () => {
    expect((await signIn({})).status).toBe(200);
    expect((await signIn({}, foreign)).body.error).toBe("invalid_grant");
    for (const change of [
      { aud: "https://oauth2.googleapis.com/token" },
      { iss: "x@y.example" },
      { exp: now - 1 },
      { exp: now + 9999 },
    ]) {
      expect((await signIn(change)).body.error).toBe("invalid_grant");
    }
    const json = { grant_type: "urn:ietf:params:oauth:grant-type:jwt-bearer", assertion: signedBy(foreign, claims()) };
    expect((await ask(`${origin()}/token`, "POST", json)).body.error).toBe("unsupported_grant_type");
  });

  test("checks checksums, etags and names", async () => {
    const token = (await signIn({})).body.access_token;
    const call = (method: string, path: string, body?: object) =>
      ask(`${origin()}/v1/projects/acme-payments/secrets${path}`, method, body, { authorization: `Bearer ${token}` });
    const made = await call("POST", "?secretId=sums", { replication: { automatic: {} } });
    expect(made.status).toBe(200);
    expect((await call("POST", "?secretId=sums", { replication: { automatic: {} } })).status).toBe(409);
    expect((await call("POST", "?secretId=a.b", { replication: { automatic: {} } })).status).toBe(400);
    const data = Buffer.from("123456789").toString("base64");
    const wrong = { payload: { data, dataCrc32c: "1" } };
    expect((await call("POST", "/sums:addVersion", wrong)).status).toBe(400);
    const right = { payload: { data, dataCrc32c: String(0xe3069283) } };
    expect((await call("POST", "/sums:addVersion", right)).status).toBe(200);
    const old = { annotations: {}, etag: '"old"' };
    expect((await call("PATCH", "/sums?updateMask=annotations", old)).body.error).toMatchObject({
      status: "FAILED_PRECONDITION",
    });
  });
});

describe("GitHub", () => {
  const call = (method: string, path: string, body?: object, headers: Record<string, string> = {}) => {
    const authorization = `Bearer ${configured("github").token}`;
    return ask(`${cloud.environment.GITHUB_API_URL}${path}`, method, body, { authorization, ...headers });
  };

  test("accepts only values that were sealed for its own key", async () => {
    const path = "/repos/acme/shop/actions/secrets";
    const { key_id } = (await call("GET", `${path}/public-key`)).body;
    const clear = Buffer.from("clear text").toString("base64");
    expect((await call("PUT", `${path}/DB`, { encrypted_value: clear, key_id })).status).toBe(422);
    expect((await call("PUT", `${path}/DB`, { encrypted_value: clear, key_id: "0" })).status).toBe(422);
    expect((await call("GET", `${path}/DB`)).status).toBe(404);
  });

  test("accepts its own app's tokens for at most ten minutes", async () => {
    const { appId, installationId, privateKey } = cloud.control.providers.githubApp();
    const now = Math.floor(Date.now() / 1000);
    const signIn = (claims: object) => {
      const assertion = signedBy(createPrivateKey(privateKey), {
        iss: appId,
        iat: now - 60,
        exp: now + 500,
        ...claims,
      });
      const headers = { authorization: `Bearer ${assertion}` };
      return call("POST", `/app/installations/${installationId}/access_tokens`, undefined, headers);
    };
    expect((await signIn({})).status).toBe(201);
    for (const claims of [{ exp: now + 5000 }, { exp: now - 1 }, { iss: "1" }, { iat: now + 100 }]) {
      expect((await signIn(claims)).status).toBe(401);
    }
  });

  test("returns the same error for a missing and for an invisible repository", async () => {
    expect((await call("GET", "/repos/acme/none/actions/secrets/public-key")).status).toBe(404);
    expect((await call("GET", "/repos/other/shop/actions/secrets/public-key")).status).toBe(404);
    expect((await call("GET", "/rate_limit", undefined, { authorization: "Bearer x" })).status).toBe(401);
  });
});
