import { createPrivateKey, generateKeyPairSync, type KeyObject } from "node:crypto";
import { writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startTestCloud } from "../../../../test/azure/live-cloud.ts";
import { trust } from "../../../../test/support/trust.ts";
import type { Cloud } from "../../cloud.ts";
import { rs256 } from "../../jwt.ts";

// Tests the secret stores other than Azure and AWS in the simulated cloud: HashiCorp Vault, Kubernetes, Google Secret Manager
// and GitHub Actions. Each must reject the requests that the real product rejects.

let cloud: Cloud;
let folder: string;
beforeAll(async () => {
  ({ cloud } = await startTestCloud({ company: { subscriptions: [] } }));
  folder = await mkdtemp(join(tmpdir(), "authority-"));
  const authority = join(folder, "kubernetes.pem");
  writeFileSync(authority, configurationOf("kubernetes").caCertificate!);
  trust(authority);
});
afterAll(async () => {
  await cloud?.stop();
  await rm(folder, { recursive: true });
});

/** Returns the address and credentials of a provider, as a user would configure them in the service. */
const configurationOf = (provider: string) => cloud.control.providers.configurations()[provider]!;

/**
 * Sends a request and returns the status and the JSON body of the response. An object is sent as JSON, URLSearchParams as a
 * form.
 */
async function sendRequest(
  address: string,
  method: string,
  body?: object | URLSearchParams,
  headers: Record<string, string> = {},
): Promise<{ status: number; body: Record<string, never> }> {
  const isForm = body instanceof URLSearchParams;
  const sentBody = body === undefined ? {} : { body: isForm ? body : JSON.stringify(body) };
  const contentType: Record<string, string> =
    isForm || body === undefined ? {} : { "content-type": "application/json" };
  const answer = await fetch(address, { method, ...sentBody, headers: { ...contentType, ...headers } });
  const text = await answer.text();
  return { status: answer.status, body: text === "" ? {} : JSON.parse(text) };
}

describe("HashiCorp Vault", () => {
  const call = (method: string, path: string, body?: object, token = configurationOf("hashicorp").token!) =>
    sendRequest(`${configurationOf("hashicorp").address}/v1/${path}`, method, body, { "x-vault-token": token });

  test("writes a value only if the request names the current version", async () => {
    const data = { data: { value: "one" } };
    expect((await call("POST", "secret/data/cas", { ...data, options: { cas: 1 } })).status).toBe(400);
    expect((await call("POST", "secret/data/cas", { ...data, options: { cas: 0 } })).status).toBe(200);
    const { status, body } = await call("POST", "secret/data/cas", { ...data, options: { cas: 0 } });
    expect([status, body.errors]).toEqual([400, ["check-and-set parameter did not match the current version"]]);
  });

  test("returns 403 for a wrong token and a missing mount, and 404 for deleted data", async () => {
    expect((await call("GET", "secret/metadata/none", undefined, "wrong")).status).toBe(403);
    expect((await call("GET", "sys/internal/ui/mounts/nothing")).status).toBe(403);
    await call("POST", "secret/data/gone", { data: { value: "one" } });
    await call("DELETE", "secret/data/gone");
    expect((await call("GET", "secret/data/gone")).status).toBe(404);
    expect((await call("GET", "secret/metadata/gone")).status).toBe(200);
    await call("POST", "secret/undelete/gone", { versions: [1] });
    expect((await call("GET", "secret/data/gone")).status).toBe(200);
  });

  test("rejects metadata over 512 bytes and a wrong secret ID", async () => {
    const response = await call("POST", "secret/metadata/long", { custom_metadata: { note: "x".repeat(513) } });
    expect(response.status).toBe(400);
    const { roleId } = cloud.control.providers.hashicorp.credentials;
    const signIn = await call("POST", "auth/approle/login", { role_id: roleId, secret_id: "wrong" });
    expect([signIn.status, signIn.body.errors]).toEqual([400, ["invalid role or secret ID"]]);
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
    const { address, namespace, token } = configurationOf("kubernetes");
    const authorization = { authorization: `Bearer ${token}` };
    return sendRequest(`${address}/api/v1/namespaces/${namespace}/secrets${path}`, method, body, {
      ...authorization,
      ...headers,
    });
  };
  const apply = (name: string, body: object, query: string) =>
    call("PATCH", `/${name}?${query}`, body, { "content-type": "application/apply-patch+yaml" });
  const METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

  test("returns only metadata if the client asks for it", async () => {
    await call("POST", "?fieldManager=one", secretOf("alone", "x"));
    const { body } = await call("GET", "/alone", undefined, { accept: METADATA });
    expect(body).toMatchObject({ kind: "PartialObjectMetadata", metadata: { managedFields: [{ manager: "one" }] } });
    expect(body).not.toHaveProperty("data");
    expect((await call("GET", "/alone")).body).toHaveProperty("data");
  });

  test("rejects a change of another manager's fields unless it is forced", async () => {
    await call("POST", "?fieldManager=one", secretOf("fields", "x"));
    const conflict = await apply("fields", secretOf("fields", "y"), "fieldManager=two");
    expect([conflict.status, conflict.body.reason]).toEqual([409, "Conflict"]);
    const outdated = secretOf("fields", "y", { resourceVersion: "1" });
    expect((await apply("fields", outdated, "fieldManager=two&force=true")).status).toBe(409);
    expect((await apply("fields", secretOf("fields", "y"), "fieldManager=two&force=true")).status).toBe(200);
    const { body } = await call("GET", "/fields", undefined, { accept: METADATA });
    const { managedFields } = body.metadata as unknown as { managedFields: object[] };
    expect(managedFields).toHaveLength(1);
    expect(managedFields).toMatchObject([{ manager: "two", fieldsV1: { "f:data": { "f:value": {} } } }]);
  });

  test("returns errors as a Kubernetes Status with a reason", async () => {
    await call("POST", "", secretOf("once", "x"));
    expect((await call("POST", "", secretOf("once", "x"))).body.reason).toBe("AlreadyExists");
    expect((await call("POST", "", secretOf("Wrong", "x"))).body.reason).toBe("Invalid");
    const { data: _, ...rest } = secretOf("text", "x");
    expect((await call("POST", "", { ...rest, data: { value: "no base64!" } })).body.reason).toBe("Invalid");
    expect((await call("PATCH", "/once", secretOf("once", "y"))).body.reason).toBe("UnsupportedMediaType");
    expect((await call("GET", "/once", undefined, { authorization: "Bearer x" })).body.reason).toBe("Unauthorized");
  });
});

/** Returns a JSON Web Token that is signed with the key. */
const signJwt = (key: KeyObject, claims: object) =>
  rs256({ typ: "JWT" }, { ...claims }, { id: "", privateKey: key, publicKey: key });
/** The key of the configured accounts. Google and GitHub use the same key in the simulated cloud. */
const accountKey = () => cloud.control.providers.githubApp().privateKey;

describe("Google", () => {
  const { privateKey: foreignKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const nowSeconds = Math.floor(Date.now() / 1000);
  const origin = () => cloud.environment.GOOGLE_SECRET_MANAGER_ENDPOINT!;
  const claims = () => ({
    iss: cloud.control.providers.google.credentials.clientEmail,
    aud: `${origin()}/token`,
    scope: "https://www.googleapis.com/auth/cloud-platform",
    iat: nowSeconds,
    exp: nowSeconds + 600,
  });
  const signIn = (change: object, key = createPrivateKey(accountKey())) => {
    const form = { grant_type: "urn:ietf:params:oauth:grant-type:jwt-bearer" };
    const assertion = signJwt(key, { ...claims(), ...change });
    return sendRequest(`${origin()}/token`, "POST", new URLSearchParams({ ...form, assertion }));
  };

  test("issues a token only for a valid assertion that the account signed", async () => {
    expect((await signIn({})).status).toBe(200);
    expect((await signIn({}, foreignKey)).body.error).toBe("invalid_grant");
    for (const change of [
      { aud: "https://oauth2.googleapis.com/token" },
      { iss: "x@y.example" },
      { exp: nowSeconds - 1 },
      { exp: nowSeconds + 9999 },
    ]) {
      expect((await signIn(change)).body.error).toBe("invalid_grant");
    }
    const json = {
      grant_type: "urn:ietf:params:oauth:grant-type:jwt-bearer",
      assertion: signJwt(foreignKey, claims()),
    };
    expect((await sendRequest(`${origin()}/token`, "POST", json)).body.error).toBe("unsupported_grant_type");
  });

  test("rejects a wrong checksum, an old ETag and an invalid name", async () => {
    const token = (await signIn({})).body.access_token;
    const call = (method: string, path: string, body?: object) =>
      sendRequest(`${origin()}/v1/projects/acme-payments/secrets${path}`, method, body, {
        authorization: `Bearer ${token}`,
      });
    const created = await call("POST", "?secretId=sums", { replication: { automatic: {} } });
    expect(created.status).toBe(200);
    expect((await call("POST", "?secretId=sums", { replication: { automatic: {} } })).status).toBe(409);
    expect((await call("POST", "?secretId=a.b", { replication: { automatic: {} } })).status).toBe(400);
    /** The check value that the definition of CRC-32C gives for this text. */
    const CRC32C_OF_123456789 = 0xe3069283;
    const data = Buffer.from("123456789").toString("base64");
    const wrong = { payload: { data, dataCrc32c: "1" } };
    expect((await call("POST", "/sums:addVersion", wrong)).status).toBe(400);
    const validPayload = { payload: { data, dataCrc32c: String(CRC32C_OF_123456789) } };
    expect((await call("POST", "/sums:addVersion", validPayload)).status).toBe(200);
    const old = { annotations: {}, etag: '"old"' };
    expect((await call("PATCH", "/sums?updateMask=annotations", old)).body.error).toMatchObject({
      status: "FAILED_PRECONDITION",
    });
  });
});

describe("GitHub", () => {
  const call = (method: string, path: string, body?: object, headers: Record<string, string> = {}) => {
    const authorization = `Bearer ${configurationOf("github").token}`;
    return sendRequest(`${cloud.environment.GITHUB_API_URL}${path}`, method, body, { authorization, ...headers });
  };

  test("rejects a value that is not encrypted with its public key", async () => {
    const path = "/repos/acme/shop/actions/secrets";
    const { key_id } = (await call("GET", `${path}/public-key`)).body;
    const clear = Buffer.from("clear text").toString("base64");
    expect((await call("PUT", `${path}/DB`, { encrypted_value: clear, key_id })).status).toBe(422);
    expect((await call("PUT", `${path}/DB`, { encrypted_value: clear, key_id: "0" })).status).toBe(422);
    expect((await call("GET", `${path}/DB`)).status).toBe(404);
  });

  test("accepts tokens of its app that are valid for at most ten minutes", async () => {
    const { appId, installationId, privateKey } = cloud.control.providers.githubApp();
    const nowSeconds = Math.floor(Date.now() / 1000);
    const signIn = (claims: object) => {
      const assertion = signJwt(createPrivateKey(privateKey), {
        iss: appId,
        iat: nowSeconds - 60,
        exp: nowSeconds + 500,
        ...claims,
      });
      const headers = { authorization: `Bearer ${assertion}` };
      return call("POST", `/app/installations/${installationId}/access_tokens`, undefined, headers);
    };
    expect((await signIn({})).status).toBe(201);
    for (const claims of [
      { exp: nowSeconds + 5000 },
      { exp: nowSeconds - 1 },
      { iss: "1" },
      { iat: nowSeconds + 100 },
    ]) {
      expect((await signIn(claims)).status).toBe(401);
    }
  });

  test("returns 404 for a missing repository and for one that the token cannot read", async () => {
    expect((await call("GET", "/repos/acme/none/actions/secrets/public-key")).status).toBe(404);
    expect((await call("GET", "/repos/other/shop/actions/secrets/public-key")).status).toBe(404);
    expect((await call("GET", "/rate_limit", undefined, { authorization: "Bearer x" })).status).toBe(401);
  });
});
