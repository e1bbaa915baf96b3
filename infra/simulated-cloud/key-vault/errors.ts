import type { AssetKind } from "../company/company.ts";
import { type ErrorResponses, retryAfter, type ServiceResponse } from "../http.ts";
import type { Claims, TokenProblem, Tokens } from "../tokens.ts";
import type { Vault } from "../vaults/vault.ts";
import type { KeyVaultOptions } from "./request-context.ts";

// Error responses of Key Vault: https://learn.microsoft.com/azure/key-vault/general/rest-error-codes

/** The permission that an operation requires, in the terms of access policies. */
export interface Permission {
  kind: AssetKind;
  action: string;
}

export function badParameter(message: string): ServiceResponse {
  return { status: 400, body: { error: { code: "BadParameter", message } } };
}

export function missing(code: string, message: string): ServiceResponse {
  const recoveryHint = "If you recently deleted it you may be able to recover it using the correct recovery command.";
  const helpText = "For help resolving this issue, please see https://go.microsoft.com/fwlink/?linkid=2125182";
  return { status: 404, body: { error: { code, message: `${message} ${recoveryHint} ${helpText}` } } };
}

export function forbidden(message: string, inner: string): ServiceResponse {
  return { status: 403, body: { error: { code: "Forbidden", message, innererror: { code: inner } } } };
}

/**
 * Returns the 401 response with the authentication challenge, which names the tenant and the resource:
 * https://learn.microsoft.com/azure/key-vault/general/authentication-requests-and-responses
 */
export function unauthorized(
  { authority, suffix, tokens }: KeyVaultOptions,
  problem: "missing" | TokenProblem,
): ServiceResponse {
  const messages = {
    missing: "AKV10000: Request is missing a Bearer or PoP token.",
    malformed: "AKV10001: Token is not a valid JWT.",
    signature: "AKV10046: Unable to resolve the key used for signature validation.",
    expired: "AKV10015: Token is expired.",
    audience: `AKV10022: Invalid audience. Expected https://${suffix}.`,
  };
  return {
    status: 401,
    headers: {
      "www-authenticate": `Bearer authorization="${authority}/${tokens.tenantId}", resource="https://${suffix}"`,
    },
    body: { error: { code: "Unauthorized", message: messages[problem] } },
  };
}

/**
 * Returns the error responses for a request. The 403 text differs between vaults with roles and vaults with access policies.
 */
export function keyVaultErrorResponses(
  vault: Vault | undefined,
  { kind, action }: Permission,
  tokens: Tokens,
  claims?: Claims,
): ErrorResponses {
  const caller = `appid=${claims?.appid ?? ""};oid=${claims?.oid ?? ""};iss=${tokens.issuer}`;
  const vaultText = `Vault: ${vault?.name ?? ""};location=${vault?.location ?? ""}`;
  return {
    throttled: (seconds) => ({
      status: 429,
      headers: retryAfter(seconds),
      body: {
        error: {
          code: "Throttled",
          message:
            "Request was not processed because too many requests were received. Reason: VaultRequestTypeLimitReached",
        },
      },
    }),
    denied: () =>
      vault?.settings.rbac === false
        ? forbidden(
            `The user, group or application '${caller}' does not have ${kind} ${action} permission on key vault '${vault.name};location=${vault.location}'. For help resolving this issue, please see https://go.microsoft.com/fwlink/?linkid=2125287`,
            "AccessDenied",
          )
        : forbidden(
            `Caller is not authorized to perform action on resource.\r\nIf role assignments, deny assignments or role definitions were changed recently, please observe propagation time.\r\nCaller: ${caller}\r\nAction: '${dataAction(kind, action)}'\r\nResource: '${vault?.id.toLowerCase() ?? ""}'\r\nAssignment: (not found)\r\nDenyAssignmentId: null\r\nDecisionReason: null \r\n${vaultText}\r\n`,
            "ForbiddenByRbac",
          ),
    firewalled: () =>
      vault?.settings.reach === "privateOnly" || vault?.settings.publicNetworkAccess === "Disabled"
        ? forbidden(
            `Public network access is disabled and request is not from a trusted service nor via an approved private link.\r\nCaller: ${caller}\r\n${vaultText}`,
            "ForbiddenByConnection",
          )
        : forbidden(
            `Client address is not authorized and caller is not a trusted service.\r\nClient address: 203.0.113.7\r\nCaller: ${caller}\r\n${vaultText}`,
            "ForbiddenByFirewall",
          ),
    failed: (status) => ({
      status,
      body: {
        error:
          status === 503
            ? { code: "ServiceUnavailable", message: "The service is unavailable. Please try again." }
            : { code: "InternalServerError", message: "An error has occurred. Please try again." },
      },
    }),
  };
}

/**
 * Returns the data action of a role:
 * https://learn.microsoft.com/azure/role-based-access-control/permissions/security#microsoftkeyvault
 */
function dataAction(kind: AssetKind, action: string): string {
  const actionNames: Record<string, string> = {
    list: kind === "secrets" ? "readMetadata" : "read",
    get: kind === "secrets" ? "getSecret" : "read",
    getrotationpolicy: "rotationpolicy/read",
    setrotationpolicy: "rotationpolicy/write",
    set: "setSecret",
  };
  const actionName = actionNames[action] ?? action;
  return `Microsoft.KeyVault/vaults/${kind === "certificates" ? "certificates" : kind}/${actionName}${/(read|write)$/.test(actionName) ? "" : "/action"}`;
}
