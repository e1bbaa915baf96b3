import type { AssetKind } from "../company/company.ts";
import type { Answer, Incoming, Service } from "../http.ts";
import { bearerToken, type Claims } from "../tokens.ts";
import { current } from "../vaults/items.ts";
import type { Vault } from "../vaults/vault.ts";
import { badParameter, keyVaultRefusals, missing, type Permission, unauthorized } from "./errors.ts";
import { KeyVaultJson } from "./json.ts";
import type { KeyVaultOptions, VaultCall } from "./request-context.ts";
import { deleteSecret, purgeSecret, recoverSecret, setSecret, updateSecret } from "./write-operations.ts";

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

interface Route {
  operation: string;
  permission: Permission;
  name?: string;
  version?: string;
  answer(call: VaultCall): Answer;
}

/** Simulates Key Vault's data plane. The host name selects the vault. */
export function keyVault(options: KeyVaultOptions): Service {
  return (request) => {
    const found = route(request);
    if (found === undefined) return undefined;
    const vaultName = request.host.slice(0, -options.suffix.length - 1);
    const vault = options.resources.vault(vaultName);
    const token = bearerToken(request.headers.authorization);
    const claims = token === undefined ? "missing" : options.tokens.check(token, [`https://${options.suffix}`]);
    const known = { vault: vaultName, ...(found.name !== undefined && { item: found.name }) };
    if (typeof claims === "string") {
      const refusals = keyVaultRefusals(vault, found.permission, options.tokens);
      const answer = () => withHeaders(request, vault, unauthorized(options, claims));
      return { name: "keyvault.challenge", ...known, refusals, anonymous: true, answer };
    }
    const refusals = keyVaultRefusals(vault, found.permission, options.tokens, claims);
    const answer = () => {
      const answered = answerOf(options, request, found, vault, claims);
      if (vault) logRequest(options, { vault, claims, request, operation: found.operation, answered });
      return withHeaders(request, vault, answered);
    };
    return { name: found.operation, ...known, refusals, answer };
  };
}

/** Operation names in the log category AuditEvent: https://learn.microsoft.com/azure/key-vault/general/logging */
function logRequest(
  { workspaces }: KeyVaultOptions,
  of: { vault: Vault; claims: Claims; request: Incoming; operation: string; answered: Answer },
): void {
  const { vault, claims, request, operation, answered } = of;
  const [, verb = "", object = ""] = /^keyvault\.([a-z]+)(\w+)$/.exec(operation) ?? [];
  const { id, kid } = (answered.body ?? {}) as { id?: string; kid?: string; key?: { kid?: string } };
  const key = (answered.body as { key?: { kid?: string } } | undefined)?.key?.kid;
  workspaces.vaultRequest(vault.name, {
    operation: `${object.replace(/s$/, "")}${verb[0]?.toUpperCase()}${verb.slice(1)}`,
    vaultId: vault.id,
    id: id ?? key ?? kid ?? "",
    requestUri: `https://${request.authority}${request.target}`,
    status: answered.status,
    objectId: claims.oid,
    appId: claims.appid,
  });
}

function answerOf(
  options: KeyVaultOptions,
  request: Incoming,
  found: Route,
  vault: Vault | undefined,
  claims: Claims,
): Answer {
  if (vault === undefined) return missing("VaultNotFound", `The vault ${request.host} does not exist.`);
  const version = request.query.get("api-version");
  if (!version) return badParameter("api-version must be specified");
  if (!VERSIONS.has(version)) {
    return badParameter(
      `The specified version (${version}) is not recognized. Consider using the latest supported version (2025-07-01).`,
    );
  }
  const refusals = keyVaultRefusals(vault, found.permission, options.tokens, claims);
  const { reach = "open", deniedKinds = [] } = vault.settings;
  if (reach === "firewalled" || reach === "privateOnly") return refusals.firewalled();
  if (reach === "denied") return refusals.denied();
  if (deniedKinds.includes(found.permission.kind)) return refusals.denied();
  const shapes = new KeyVaultJson(vault, `https://${request.authority}`, options.certificates);
  return found.answer({ options, vault, shapes, request, name: found.name ?? "", version: found.version });
}

function route(request: Incoming): Route | undefined {
  const { method } = request;
  const segments = request.segments.at(-1) === "" ? request.segments.slice(0, -1) : request.segments;
  const [root = "", name, second, ...more] = segments;
  if (more.length > 0) return undefined;
  if (root === "deletedsecrets") return deletedRoute(method, name, second);
  if (root !== "secrets" && root !== "keys" && root !== "certificates") return undefined;
  const kind: AssetKind = root;
  const one = kind === "secrets" ? "Secret" : kind === "keys" ? "Key" : "Certificate";

  if (name === undefined) {
    if (method !== "GET") return undefined;
    return {
      operation: `keyvault.list${one}s`,
      permission: { kind, action: "list" },
      answer: (call) => list(call, kind),
    };
  }
  const permission = (action: string): Permission => ({ kind, action });
  if (method === "GET") {
    if (second === "versions") {
      const answer = (call: VaultCall) => listVersions(call, kind);
      return { operation: `keyvault.list${one}Versions`, permission: permission("list"), name, answer };
    }
    if (kind === "keys" && second === "rotationpolicy") {
      const action = "getrotationpolicy";
      const answer = (call: VaultCall) => {
        const key = call.vault.collections.keys.get(name);
        if (key !== undefined) return { status: 200, body: call.shapes.rotationPolicy(key) };
        return missing("KeyNotFound", `A key with (name/id) ${name} was not found in this key vault.`);
      };
      return { operation: "keyvault.getRotationPolicy", permission: permission(action), name, answer };
    }
    if (kind === "certificates" && second === "policy") {
      const answer = (call: VaultCall) => {
        const certificate = call.vault.collections.certificates.get(name);
        if (certificate !== undefined) return { status: 200, body: call.shapes.policy(certificate) };
        return missing("CertificateNotFound", `A certificate with (name/id) ${name} was not found in this key vault.`);
      };
      return { operation: "keyvault.getCertificatePolicy", permission: permission("get"), name, answer };
    }
    return {
      operation: `keyvault.get${one}`,
      permission: permission("get"),
      name,
      ...(second !== undefined && { version: second }),
      answer: (call) => get(call, kind),
    };
  }
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

function deletedRoute(method: string, name: string | undefined, second: string | undefined): Route | undefined {
  const permission = (action: string): Permission => ({ kind: "secrets", action });
  if (method === "GET" && name === undefined) {
    return {
      operation: "keyvault.listDeletedSecrets",
      permission: permission("list"),
      answer: ({ vault, shapes }) => ({
        status: 200,
        body: {
          value: [...vault.deletedSecrets.values()].map((deleted) => shapes.deletedSecretItem(deleted)),
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
      answer: ({ vault, shapes }) => {
        const deleted = vault.deletedSecrets.get(name.toLowerCase());
        return deleted === undefined
          ? missing("SecretNotFound", `Deleted Secret not found: ${name}`)
          : { status: 200, body: shapes.deletedSecretItem(deleted) };
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

function pageSize({ query }: Incoming): number | undefined {
  const size = Number(query.get("maxresults") ?? MAX_RESULTS);
  return Number.isInteger(size) && size >= 1 && size <= MAX_RESULTS ? size : undefined;
}

function nextLink(request: Incoming, token: string | undefined): string | null {
  if (token === undefined) return null;
  const query = new URLSearchParams(request.query);
  query.set("$skiptoken", Buffer.from(token).toString("base64url"));
  return `https://${request.authority}${request.path}?${query}`;
}

function list({ vault, shapes, request }: VaultCall, kind: AssetKind): Answer {
  const size = pageSize(request);
  if (size === undefined) return badParameter("maxresults must be between 1 and 25");
  const token = request.query.get("$skiptoken");
  const from = token === null ? undefined : Buffer.from(token, "base64url").toString("utf8");
  const page = vault.page(kind, from, size);
  if (page === undefined) return badParameter("The specified $skiptoken is not valid");
  const value = page.items.map((entry) => shapes.listItem(kind, entry));
  return { status: 200, body: { value, nextLink: nextLink(request, page.next) } };
}

function listVersions({ shapes, request, name }: VaultCall, kind: AssetKind): Answer {
  const size = pageSize(request);
  if (size === undefined) return badParameter("maxresults must be between 1 and 25");
  const token = request.query.get("$skiptoken");
  const start = token === null ? 0 : Number(Buffer.from(token, "base64url").toString("utf8"));
  if (!Number.isInteger(start)) return badParameter("The specified $skiptoken is not valid");
  const all = shapes.versions(kind, name);
  const next = start + size < all.length ? String(start + size) : undefined;
  return { status: 200, body: { value: all.slice(start, start + size), nextLink: nextLink(request, next) } };
}

function get({ vault, shapes, name, version }: VaultCall, kind: AssetKind): Answer {
  const own = vault.collections[kind].get(name);
  const behind = own ?? vault.collections.certificates.get(name);
  const wanted =
    behind === undefined
      ? undefined
      : version === undefined || version === ""
        ? current<(typeof behind.versions)[number]>(behind as never)
        : behind.versions.find((one) => one.id === version);
  if (behind === undefined || wanted === undefined) {
    const one = kind === "secrets" ? "secret" : kind === "keys" ? "key" : "certificate";
    const code = kind === "secrets" ? "SecretNotFound" : kind === "keys" ? "KeyNotFound" : "CertificateNotFound";
    const place = version ? `${name}/${version}` : name;
    return missing(code, `A ${one} with (name/id) ${place} was not found in this key vault.`);
  }
  if (kind === "secrets" && !wanted.enabled) {
    // A disabled secret is not returned. Disabled keys and certificates are, because their responses contain only public parts.
    const innererror = { code: "SecretDisabled" };
    const message = "Operation get is not allowed on a disabled secret.";
    return { status: 403, body: { error: { code: "Forbidden", message, innererror } } };
  }
  return { status: 200, body: shapes.bundle(kind, name, wanted.id) };
}

function withHeaders(request: Incoming, vault: Vault | undefined, answer: Answer): Answer {
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
