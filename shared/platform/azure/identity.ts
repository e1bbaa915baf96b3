import type { AccessToken, GetTokenOptions, TokenCredential } from "@azure/core-auth";
import { decodeJwt } from "jose";
import type { Config } from "../config/config.ts";
import { asCloudFailure, type CallTarget, CloudFailure, failure, noAnswer, ranOutOfTime } from "./failure.ts";

/** The service's identity as its own token describes it, without the token. */
export interface IdentityDescription {
  credentialType: CredentialType;
  tenantId?: string;
  /** The application (client) ID. */
  clientId?: string;
  /** The principal's object ID, which role assignments use. */
  objectId?: string;
  /** The managed identity's resource name, or the signed-in user. */
  name?: string;
  cloud: string;
  authorityHost: string;
  /** ISO 8601. */
  tokenExpiresAt: string;
}

export type CredentialType = "clientSecret" | "managedIdentity" | "developerSignIn";

export interface Identity {
  /**
   * Returns the credential of the process. Its tokens are cached by scope, and parallel first calls share one request.
   * @throws {CloudFailure} from `getToken`: unauthenticated, unreachable or timedOut.
   */
  credential(): Promise<TokenCredential>;
  /** @throws {CloudFailure} if no token can be acquired. */
  describe(): Promise<IdentityDescription>;
}

/**
 * Milliseconds that a token request may take. A developer's command-line sign-in starts a process, which can take most of the
 * time.
 */
const TOKEN_TIMEOUT_MS = 60_000;

/** Milliseconds before expiry from which a token is renewed. Until then, MSAL answers from its own cache. */
const RENEW_BEFORE_EXPIRY_MS = 5 * 60_000;

/** Hosts whose metadata MSAL knows or may ask the public cloud for: https://learn.microsoft.com/entra/identity-platform/authentication-national-cloud */
const WELL_KNOWN_AUTHORITIES = new Set([
  "login.microsoftonline.com",
  "login.microsoftonline.us",
  "login.chinacloudapi.cn",
  "login.partner.microsoftonline.cn",
]);

export function createIdentity(
  config: Config,
  limits: { timeoutMs: number } = { timeoutMs: TOKEN_TIMEOUT_MS },
): Identity {
  const credentialType = chooseCredential(config);
  const remedy = REMEDIES[credentialType];
  const target: CallTarget = {
    operation: "sign in to the cloud",
    resource: describeSource(credentialType, config),
    signIn: remedy,
  };
  const cached = new Map<string, AccessToken>();
  const pending = new Map<string, Promise<AccessToken>>();
  let source: Promise<TokenCredential> | undefined;

  const request = async (scopes: string | string[], options: GetTokenOptions): Promise<AccessToken> => {
    source ??= openCredential(credentialType, config);
    const credential = await source;
    try {
      const token = await withTimeout(target, limits.timeoutMs, (signal) =>
        credential.getToken(scopes, { ...options, abortSignal: signal }),
      );
      if (token === null) throw failure("unauthenticated", target, "no credential was found", { remedy });
      return token;
    } catch (error) {
      throw asCloudFailure(error, target);
    }
  };

  const renew = (scope: string): Promise<AccessToken> => {
    const running = pending.get(scope);
    if (running) return running;
    // The request serves all waiting callers, so one caller's signal must not abort it.
    const started = request(scope, {})
      .then((token) => {
        cached.set(scope, token);
        return token;
      })
      .finally(() => pending.delete(scope));
    pending.set(scope, started);
    return started;
  };

  const shared: TokenCredential = {
    async getToken(scopes, options = {}) {
      // A claims challenge or another tenant needs a token of its own.
      if (options.claims !== undefined || options.tenantId !== undefined) return request(scopes, options);
      const scope = [scopes].flat().join(" ");
      const known = cached.get(scope);
      const now = Date.now();
      if (known && now < renewalTime(known)) return known;
      try {
        return await orAborted(renew(scope), options.abortSignal, target);
      } catch (error) {
        if (known && now < known.expiresOnTimestamp && !options.abortSignal?.aborted) return known;
        throw error;
      }
    },
  };

  return {
    credential: async () => shared,
    async describe() {
      const token = await shared.getToken(`${config.cloud.resourceManager}/.default`);
      if (token === null) throw new Error("The identity's credential always answers a token or throws.");
      return {
        credentialType,
        ...claimsOf(token.token, target),
        cloud: config.AZURE_CLOUD,
        authorityHost: config.cloud.authorityHost,
        tokenExpiresAt: new Date(token.expiresOnTimestamp).toISOString(),
      };
    },
  };
}

/** Remedies if no token can be acquired, by the type of credential. */
const REMEDIES: Record<CredentialType, string> = {
  clientSecret: "Check AZURE_TENANT_ID and AZURE_CLIENT_ID, and whether the application's secret has ended.",
  managedIdentity:
    "Turn on the app's managed identity. AZURE_CLIENT_ID, where it is set, names a user-assigned one that the app must have.",
  developerSignIn: "Sign in with the Azure CLI: az login. An app in Azure needs a managed identity instead.",
};

function chooseCredential(config: Config): CredentialType {
  if (config.AZURE_CLIENT_SECRET) return "clientSecret";
  // The platform sets this variable for an app with a managed identity:
  // https://learn.microsoft.com/azure/app-service/overview-managed-identity
  return process.env.IDENTITY_ENDPOINT ? "managedIdentity" : "developerSignIn";
}

function describeSource(type: CredentialType, config: Config): string {
  if (type === "clientSecret") return `application ${config.AZURE_CLIENT_ID} at ${config.cloud.authorityHost}`;
  if (type === "developerSignIn") return "the developer's own sign-in";
  return config.AZURE_CLIENT_ID ? `managed identity ${config.AZURE_CLIENT_ID}` : "the app's managed identity";
}

async function openCredential(type: CredentialType, config: Config): Promise<TokenCredential> {
  const { ClientSecretCredential, DefaultAzureCredential, ManagedIdentityCredential } = await import("@azure/identity");
  const { AZURE_TENANT_ID: tenantId, AZURE_CLIENT_ID: clientId, AZURE_CLIENT_SECRET: secret } = config;
  const { authorityHost } = config.cloud;
  if (type === "managedIdentity")
    return clientId ? new ManagedIdentityCredential({ clientId }) : new ManagedIdentityCredential();
  const options = {
    authorityHost,
    retryOptions: { maxRetries: 2, retryDelayInMs: 500 },
    // For any other host MSAL would first ask the public cloud, which a private cloud can't reach.
    disableInstanceDiscovery: !WELL_KNOWN_AUTHORITIES.has(new URL(authorityHost).hostname),
  };
  if (type === "clientSecret") return new ClientSecretCredential(tenantId!, clientId!, secret!, options);
  return new DefaultAzureCredential(tenantId ? { ...options, tenantId } : options);
}

function renewalTime(token: AccessToken): number {
  return Math.min(token.refreshAfterTimestamp ?? Infinity, token.expiresOnTimestamp - RENEW_BEFORE_EXPIRY_MS);
}

/** Adds a time limit, because not every credential respects its abort signal. */
async function withTimeout<T>(target: CallTarget, ms: number, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(noAnswer(target, `the sign-in service did not answer within ${ms / 1000} s`));
      controller.abort();
    }, ms);
  });
  try {
    return await Promise.race([work(controller.signal), late]);
  } finally {
    clearTimeout(timer);
  }
}

async function orAborted<T>(work: Promise<T>, signal: GetTokenOptions["abortSignal"], target: CallTarget): Promise<T> {
  if (!signal) return work;
  if (signal.aborted) throw ranOutOfTime(target);
  let onAbort: (() => void) | undefined;
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(ranOutOfTime(target));
    signal.addEventListener("abort", onAbort);
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    if (onAbort) signal.removeEventListener("abort", onAbort);
  }
}

/**
 * Claims: https://learn.microsoft.com/entra/identity-platform/access-token-claims-reference. Only displayed, so not verified.
 */
function claimsOf(
  token: string,
  target: CallTarget,
): Pick<IdentityDescription, "tenantId" | "clientId" | "objectId" | "name"> {
  let claims: Record<string, unknown>;
  try {
    claims = decodeJwt(token);
  } catch {
    throw new CloudFailure("badResponse", `Could not ${target.operation} (${target.resource}): the token is no JWT.`, {
      remedy: "Check that the sign-in addresses are those of the right cloud.",
    });
  }
  const text = (name: string) => (typeof claims[name] === "string" ? claims[name] : undefined);
  const managedIdentity = text("xms_mirid")?.split("/").at(-1);
  const description = {
    tenantId: text("tid"),
    clientId: text("appid") ?? text("azp"),
    objectId: text("oid"),
    name: text("upn") ?? text("unique_name") ?? text("app_displayname") ?? managedIdentity,
  };
  return Object.fromEntries(Object.entries(description).filter(([, value]) => value !== undefined));
}
