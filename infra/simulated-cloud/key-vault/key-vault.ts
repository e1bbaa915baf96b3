import type { AssetKind } from "../company/company.ts";
import type { IncomingRequest, Service, ServiceResponse } from "../http.ts";
import { bearerToken, type Claims } from "../tokens.ts";
import { current } from "../vaults/items.ts";
import type { Vault } from "../vaults/vault.ts";
import { certificateOperationRoute, pendingBundle } from "./certificate-operations.ts";
import { badParameter, keyVaultErrorResponses, missing, type Permission, unauthorized } from "./errors.ts";
import { KeyVaultJson } from "./json.ts";
import { rotateKey, updateRotationPolicy } from "./key-operations.ts";
import type { KeyVaultOptions, VaultCall } from "./request-context.ts";
import type { Route } from "./route.ts";
import { deleteSecret, purgeSecret, recoverSecret, setSecret, updateSecret } from "./write-operations.ts";

// The simulated data plane of Azure Key Vault: finds the vault and the operation of a request, checks access, and logs the
// request.

const LATEST_VERSION = "2025-07-01";
/** Supported API versions: https://learn.microsoft.com/rest/api/keyvault/versions and the versions that the SDKs send. */
const VERSIONS = new Set([
  "2016-10-01",
  "7.0",
  "7.1",
  "7.2",
  "7.3",
  "7.4",
  "7.5",
  "7.6",
  "2025-06-01-preview",
  "2025-07-01",
  "2026-03-01-preview",
  "2026-04-01",
]);

/** Page size `maxresults`, 1 to 25: https://learn.microsoft.com/rest/api/keyvault/secrets/get-secrets/get-secrets */
const MAX_RESULTS = 25;

/**
 * Simulates the data plane of Key Vault: reads secrets, keys and certificates, writes secrets and rotates keys. The host name selects the
 * vault.
 */
export function keyVault(options: KeyVaultOptions): Service {
  return (request) => {
    const matchedRoute = route(request);
    if (matchedRoute === undefined) return undefined;
    const vaultName = request.host.slice(0, -options.suffix.length - 1);
    const vault = options.resources.vault(vaultName);
    if (vault) options.traffic.add(vault, request.segments);
    const token = bearerToken(request.headers.authorization);
    const claims = token === undefined ? "missing" : options.tokens.check(token, [`https://${options.suffix}`]);
    const logFields = { vault: vaultName, ...(matchedRoute.name !== undefined && { item: matchedRoute.name }) };
    if (typeof claims === "string") {
      const errorResponses = keyVaultErrorResponses(vault, matchedRoute.permission, options.tokens);
      const answer = () => withHeaders(request, vault, unauthorized(options, claims));
      return { name: "keyvault.challenge", ...logFields, errorResponses, anonymous: true, answer };
    }
    const errorResponses = keyVaultErrorResponses(vault, matchedRoute.permission, options.tokens, claims);
    const answer = () => {
      const response = runRoute(options, request, matchedRoute, vault, claims);
      if (vault) logRequest(options, { vault, claims, request, operation: matchedRoute.operation, response });
      return withHeaders(request, vault, response);
    };
    return { name: matchedRoute.operation, ...logFields, errorResponses, answer };
  };
}

/**
 * Records a request in the workspaces. `keyvault.getSecret` is logged as `SecretGet`. Operation names of the log category
 * AuditEvent: https://learn.microsoft.com/azure/key-vault/general/logging
 */
function logRequest(
  { workspaces }: KeyVaultOptions,
  entry: { vault: Vault; claims: Claims; request: IncomingRequest; operation: string; response: ServiceResponse },
): void {
  const { vault, claims, request, operation, response } = entry;
  const [, verb = "", object = ""] = /^keyvault\.([a-z]+)(\w+)$/.exec(operation) ?? [];
  // The ID is in `id` for secrets and certificates, in `key.kid` for keys. Lists have no ID.
  const { id, key } = (response.body ?? {}) as { id?: string; key?: { kid?: string } };
  workspaces.recordVaultRequest(vault.name, {
    operation: `${object.replace(/s$/, "")}${verb[0]?.toUpperCase()}${verb.slice(1)}`,
    vaultId: vault.id,
    id: id ?? key?.kid ?? "",
    requestUri: `https://${request.authority}${request.target}`,
    status: response.status,
    objectId: claims.oid,
    appId: claims.appid,
  });
}

/** Checks the vault, the API version and the caller's access, then runs the operation. */
function runRoute(
  options: KeyVaultOptions,
  request: IncomingRequest,
  matchedRoute: Route,
  vault: Vault | undefined,
  claims: Claims,
): ServiceResponse {
  if (vault === undefined) return missing("VaultNotFound", `The vault ${request.host} does not exist.`);
  const version = request.query.get("api-version");
  if (!version) return badParameter("api-version must be specified");
  if (!VERSIONS.has(version)) {
    return badParameter(
      `The specified version (${version}) is not recognized. Consider using the latest supported version (${LATEST_VERSION}).`,
    );
  }
  const errorResponses = keyVaultErrorResponses(vault, matchedRoute.permission, options.tokens, claims);
  const { reach = "open", deniedKinds = [] } = vault.settings;
  if (reach === "firewalled" || reach === "privateOnly") return errorResponses.firewalled();
  if (reach === "denied") return errorResponses.denied();
  if (deniedKinds.includes(matchedRoute.permission.kind)) return errorResponses.denied();
  // Formats the items of the vault for responses.
  const json = new KeyVaultJson(vault, `https://${request.authority}`, options.certificates);
  return matchedRoute.answer({
    options,
    vault,
    json,
    request,
    name: matchedRoute.name ?? "",
    version: matchedRoute.version,
  });
}

/** Returns the route of a request. Undefined for a path or method that is not simulated. */
function route(request: IncomingRequest): Route | undefined {
  const { method } = request;
  const segments = request.segments.at(-1) === "" ? request.segments.slice(0, -1) : request.segments;
  const [root = "", name, second, ...more] = segments;
  const operationRoute = certificateOperationRoute(method, segments);
  if (operationRoute !== undefined) return operationRoute;
  if (more.length > 0) return undefined;
  if (root === "deletedsecrets") return deletedRoute(method, name, second);
  if (root !== "secrets" && root !== "keys" && root !== "certificates") return undefined;
  const kind: AssetKind = root;
  const noun = kind === "secrets" ? "Secret" : kind === "keys" ? "Key" : "Certificate";

  if (name === undefined) {
    if (method !== "GET") return undefined;
    return {
      operation: `keyvault.list${noun}s`,
      permission: { kind, action: "list" },
      answer: (call) => list(call, kind),
    };
  }
  const permission = (action: string): Permission => ({ kind, action });
  if (method === "GET") {
    if (second === "versions") {
      const answer = (call: VaultCall) => listVersions(call, kind);
      return { operation: `keyvault.list${noun}Versions`, permission: permission("list"), name, answer };
    }
    if (kind === "keys" && second === "rotationpolicy") {
      const action = "getrotationpolicy";
      const answer = (call: VaultCall) => {
        const key = call.vault.collections.keys.get(name);
        if (key !== undefined) return { status: 200, body: call.json.rotationPolicy(key) };
        return missing("KeyNotFound", `A key with (name/id) ${name} was not found in this key vault.`);
      };
      return { operation: "keyvault.getRotationPolicy", permission: permission(action), name, answer };
    }
    if (kind === "certificates" && second === "policy") {
      const answer = (call: VaultCall) => {
        const certificate = call.vault.collections.certificates.get(name);
        if (certificate !== undefined) return { status: 200, body: call.json.policy(certificate) };
        return missing("CertificateNotFound", `A certificate with (name/id) ${name} was not found in this key vault.`);
      };
      return { operation: "keyvault.getCertificatePolicy", permission: permission("get"), name, answer };
    }
    return {
      operation: `keyvault.get${noun}`,
      permission: permission("get"),
      name,
      ...(second !== undefined && { version: second }),
      answer: (call) => get(call, kind),
    };
  }
  if (kind === "keys") return keyWriteRoute(method, name, second);
  if (kind !== "secrets") return undefined;
  if (method === "PUT" && second === undefined) {
    return { operation: "keyvault.setSecret", permission: permission("set"), name, answer: setSecret };
  }
  if (method === "PATCH") {
    return {
      operation: "keyvault.updateSecret",
      permission: permission("set"),
      name,
      ...(second !== undefined && { version: second }),
      answer: updateSecret,
    };
  }
  if (method === "DELETE" && second === undefined) {
    return { operation: "keyvault.deleteSecret", permission: permission("delete"), name, answer: deleteSecret };
  }
  return undefined;
}

/** Returns the route of a request that changes a key. */
function keyWriteRoute(method: string, name: string, second: string | undefined): Route | undefined {
  if (method === "POST" && second === "rotate") {
    return { operation: "keyvault.rotateKey", permission: { kind: "keys", action: "rotate" }, name, answer: rotateKey };
  }
  if (method === "PUT" && second === "rotationpolicy") {
    const permission: Permission = { kind: "keys", action: "setrotationpolicy" };
    return { operation: "keyvault.setRotationPolicy", permission, name, answer: updateRotationPolicy };
  }
  return undefined;
}

/** Returns the route of a request to deleted secrets: list, read, purge or recover. */
function deletedRoute(method: string, name: string | undefined, second: string | undefined): Route | undefined {
  const permission = (action: string): Permission => ({ kind: "secrets", action });
  if (method === "GET" && name === undefined) {
    return {
      operation: "keyvault.listDeletedSecrets",
      permission: permission("list"),
      answer: ({ vault, json }) => ({
        status: 200,
        body: {
          value: [...vault.deletedSecrets.values()].map((deleted) => json.deletedSecretItem(deleted)),
          nextLink: null,
        },
      }),
    };
  }
  if (name === undefined) return undefined;
  if (method === "GET" && second === undefined) {
    return {
      operation: "keyvault.getDeletedSecret",
      permission: permission("get"),
      name,
      answer: ({ vault, json }) => {
        const deleted = vault.deletedSecrets.get(name.toLowerCase());
        return deleted === undefined
          ? missing("SecretNotFound", `Deleted Secret not found: ${name}`)
          : { status: 200, body: json.deletedSecretItem(deleted) };
      },
    };
  }
  if (method === "DELETE" && second === undefined) {
    return { operation: "keyvault.purgeSecret", permission: permission("purge"), name, answer: purgeSecret };
  }
  if (method === "POST" && second === "recover") {
    return { operation: "keyvault.recoverSecret", permission: permission("recover"), name, answer: recoverSecret };
  }
  return undefined;
}

function pageSize({ query }: IncomingRequest): number | undefined {
  const size = Number(query.get("maxresults") ?? MAX_RESULTS);
  return Number.isInteger(size) && size >= 1 && size <= MAX_RESULTS ? size : undefined;
}

function nextLink(request: IncomingRequest, token: string | undefined): string | null {
  if (token === undefined) return null;
  const query = new URLSearchParams(request.query);
  query.set("$skiptoken", Buffer.from(token).toString("base64url"));
  return `https://${request.authority}${request.path}?${query}`;
}

function list({ vault, json, request }: VaultCall, kind: AssetKind): ServiceResponse {
  const size = pageSize(request);
  if (size === undefined) return badParameter("maxresults must be between 1 and 25");
  const token = request.query.get("$skiptoken");
  const from = token === null ? undefined : Buffer.from(token, "base64url").toString("utf8");
  const page = vault.page(kind, from, size);
  if (page === undefined) return badParameter("The specified $skiptoken is not valid");
  const value = page.items.map((entry) => json.listItem(kind, entry));
  return { status: 200, body: { value, nextLink: nextLink(request, page.next) } };
}

function listVersions({ json, request, name }: VaultCall, kind: AssetKind): ServiceResponse {
  const size = pageSize(request);
  if (size === undefined) return badParameter("maxresults must be between 1 and 25");
  const token = request.query.get("$skiptoken");
  const start = token === null ? 0 : Number(Buffer.from(token, "base64url").toString("utf8"));
  if (!Number.isInteger(start)) return badParameter("The specified $skiptoken is not valid");
  const versions = json.versions(kind, name);
  const nextPosition = start + size < versions.length ? String(start + size) : undefined;
  return {
    status: 200,
    body: { value: versions.slice(start, start + size), nextLink: nextLink(request, nextPosition) },
  };
}

function get({ vault, json, name, version }: VaultCall, kind: AssetKind): ServiceResponse {
  const ownItem = vault.collections[kind].get(name);
  // A certificate also has a key and a secret of its name.
  const item = ownItem ?? vault.collections.certificates.get(name);
  const selected =
    item === undefined
      ? undefined
      : version === undefined || version === ""
        ? current<(typeof item.versions)[number]>(item as never)
        : item.versions.find((one) => one.id === version);
  if (item === undefined && kind === "certificates" && vault.certificateOperations.has(name.toLowerCase()))
    return { status: 200, body: pendingBundle(vault, json, name) };
  if (item === undefined || selected === undefined) {
    const noun = kind === "secrets" ? "secret" : kind === "keys" ? "key" : "certificate";
    const code = kind === "secrets" ? "SecretNotFound" : kind === "keys" ? "KeyNotFound" : "CertificateNotFound";
    const reference = version ? `${name}/${version}` : name;
    return missing(code, `A ${noun} with (name/id) ${reference} was not found in this key vault.`);
  }
  if (kind === "secrets" && !selected.enabled) {
    // A disabled secret is not returned. Disabled keys and certificates are, because their responses contain only public parts.
    const innererror = { code: "SecretDisabled" };
    const message = "Operation get is not allowed on a disabled secret.";
    return { status: 403, body: { error: { code: "Forbidden", message, innererror } } };
  }
  return { status: 200, body: json.bundle(kind, name, selected.id) };
}

function withHeaders(request: IncomingRequest, vault: Vault | undefined, answer: ServiceResponse): ServiceResponse {
  const clientId = request.headers["x-ms-client-request-id"];
  return {
    ...answer,
    headers: {
      "cache-control": "no-cache",
      pragma: "no-cache",
      "x-ms-keyvault-region": vault?.location ?? "westeurope",
      "x-ms-keyvault-service-version": "1.9.2784.1",
      "x-ms-keyvault-network-info": "conn_type=Ipv4;addr=127.0.0.1;act_addr_fam=InterNetwork;",
      ...(typeof clientId === "string" && { "x-ms-client-request-id": clientId }),
      ...answer.headers,
    },
  };
}
