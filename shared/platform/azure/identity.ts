import type { AccessToken, GetTokenOptions, TokenCredential } from "@azure/core-auth";
import { decodeJwt } from "jose";
import type { Config } from "../config/config.ts";
import { asCloudFailure, type CallTarget, CloudFailure, failure, noAnswer, ranOutOfTime } from "./failure.ts";

/** The service's identity as the claims of its access token describe it. */
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

/** The settings that decide how the service signs in. */
type SignInSettings = Pick<
  Config,
  "AZURE_CLOUD" | "AZURE_TENANT_ID" | "AZURE_CLIENT_ID" | "AZURE_CLIENT_SECRET" | "cloud"
>;

/** How the service authenticates to Azure. */
export type CredentialType = "clientSecret" | "managedIdentity" | "developerSignIn";

/** The service's own identity in Azure. */
export interface Identity {
  /**
   * Returns the credential of the process. It caches tokens by scope, and parallel calls share one token request.
   * @throws {CloudFailure} from `getToken`: unauthenticated, unreachable or timedOut.
   */
  credential(): Promise<TokenCredential>;
  /** Returns who the service signs in as. @throws {CloudFailure} if no token can be acquired. */
  describe(): Promise<IdentityDescription>;
}

/** The service's identity, for role assignments. */
export interface Principal {
  /** The managed identity's resource name, or the signed-in user. */
  name?: string | undefined;
  objectId: string;
  type: "ServicePrincipal" | "User";
}

/** Returns the service's identity for commands and messages about missing roles. Undefined if no token can be acquired. */
export async function principalOf(identity: Pick<Identity, "describe">): Promise<Principal | undefined> {
  try {
    const { objectId, credentialType, name } = await identity.describe();
    const type = credentialType === "developerSignIn" ? "User" : "ServicePrincipal";
    return objectId ? { objectId, type, name } : undefined;
  } catch (error) {
    if (error instanceof CloudFailure) return undefined;
    throw error;
  }
}

/**
 * Maximum duration of a token request. Long, because a developer's sign-in starts the Azure CLI, which can take many seconds.
 */
const TOKEN_TIMEOUT_MS = 60_000;

/**
 * A token is renewed in the last 5 minutes before its expiry. An earlier request would be useless, because MSAL, the library
 * under @azure/identity, returns its cached token until then.
 */
const RENEW_BEFORE_EXPIRY_MS = 5 * 60_000;

/** Sign-in hosts that MSAL can validate: https://learn.microsoft.com/entra/identity-platform/authentication-national-cloud */
const WELL_KNOWN_AUTHORITIES = new Set([
  "login.microsoftonline.com",
  "login.microsoftonline.us",
  "login.chinacloudapi.cn",
  "login.partner.microsoftonline.cn",
]);

/**
 * Creates the service's identity: a client secret if one is configured, otherwise the app's managed identity, otherwise the
 * developer's own sign-in.
 */
export function createIdentity(
  config: SignInSettings,
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
  let credentialPromise: Promise<TokenCredential> | undefined;

  const request = async (scopes: string | string[], options: GetTokenOptions): Promise<AccessToken> => {
    credentialPromise ??= openCredential(credentialType, config);
    const credential = await credentialPromise;
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
    // Several callers can wait for this request, so one caller's signal must not abort it.
    const started = request(scope, {})
      .then((token) => {
        cached.set(scope, token);
        return token;
      })
      .finally(() => pending.delete(scope));
    pending.set(scope, started);
    return started;
  };

  const sharedCredential: TokenCredential = {
    async getToken(scopes, options = {}) {
      // A token for a claims challenge or another tenant is not cached.
      if (options.claims !== undefined || options.tenantId !== undefined) return request(scopes, options);
      const scope = [scopes].flat().join(" ");
      const cachedToken = cached.get(scope);
      const now = Date.now();
      if (cachedToken && now < renewalTime(cachedToken)) return cachedToken;
      try {
        return await rejectIfAborted(renew(scope), options.abortSignal, target);
      } catch (error) {
        // If the renewal fails, the earlier token is used until it expires.
        if (cachedToken && now < cachedToken.expiresOnTimestamp && !options.abortSignal?.aborted) return cachedToken;
        throw error;
      }
    },
  };

  return {
    credential: async () => sharedCredential,
    async describe() {
      const token = await sharedCredential.getToken(`${config.cloud.resourceManager}/.default`);
      if (token === null) throw new Error("The credential returned neither a token nor an error.");
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
  clientSecret: "Check AZURE_TENANT_ID and AZURE_CLIENT_ID, and whether the application's secret has expired.",
  managedIdentity:
    "Enable the app's managed identity. If AZURE_CLIENT_ID is set, assign the user-assigned identity with that client ID to the app.",
  developerSignIn: "Sign in with the Azure CLI: az login. An app in Azure needs a managed identity instead.",
};

function chooseCredential(config: SignInSettings): CredentialType {
  if (config.AZURE_CLIENT_SECRET) return "clientSecret";
  // The platform sets this variable for an app with a managed identity:
  // https://learn.microsoft.com/azure/app-service/overview-managed-identity
  return process.env.IDENTITY_ENDPOINT ? "managedIdentity" : "developerSignIn";
}

function describeSource(type: CredentialType, config: SignInSettings): string {
  if (type === "clientSecret") return `application ${config.AZURE_CLIENT_ID} at ${config.cloud.authorityHost}`;
  if (type === "developerSignIn") return "the developer's own sign-in";
  return config.AZURE_CLIENT_ID ? `managed identity ${config.AZURE_CLIENT_ID}` : "the app's managed identity";
}

async function openCredential(type: CredentialType, config: SignInSettings): Promise<TokenCredential> {
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

/** Rejects after the time limit even if the credential ignores its abort signal, which some do. */
async function withTimeout<T>(target: CallTarget, ms: number, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const timeoutRejection = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(noAnswer(target, `the sign-in service did not answer within ${ms / 1000} s`));
      controller.abort();
    }, ms);
  });
  try {
    return await Promise.race([work(controller.signal), timeoutRejection]);
  } finally {
    clearTimeout(timer);
  }
}

/** Waits for the work, but rejects when the signal is aborted. The work then continues for other callers. */
async function rejectIfAborted<T>(
  work: Promise<T>,
  signal: GetTokenOptions["abortSignal"],
  target: CallTarget,
): Promise<T> {
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
 * Reads the claims of the service's own access token:
 * https://learn.microsoft.com/entra/identity-platform/access-token-claims-reference. Does not verify the token, because the
 * claims are only displayed.
 */
function claimsOf(
  token: string,
  target: CallTarget,
): Pick<IdentityDescription, "tenantId" | "clientId" | "objectId" | "name"> {
  let claims: Record<string, unknown>;
  try {
    claims = decodeJwt(token);
  } catch {
    throw new CloudFailure(
      "badResponse",
      `Could not ${target.operation} (${target.resource}): the token is not a JWT.`,
      {
        remedy: "Check that the sign-in addresses belong to the right cloud.",
      },
    );
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
