import type { FederatedSignIn } from "../access/federated-sign-in.ts";
import type { ProviderSession } from "../access/user.ts";
import type { Audit } from "../audit/audit.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { retryLater } from "../platform/http/problem.ts";
import type { RateLimiter } from "../platform/http/rate-limit.ts";
import type { Clock } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { SsoConfiguration } from "./configuration.ts";
import type { Configurations } from "./configurations.ts";
import { LogoutRefused } from "./logout-refused.ts";
import type { LogoutTokens } from "./oidc/logout-token.ts";
import type { Protocol } from "./protocol.ts";
import type { Saml } from "./saml/saml.ts";
import { SamlRefused } from "./saml/saml-refused.ts";
import { SignInRefused } from "./sign-in-refused.ts";
import type { ProtocolName } from "./sign-in-requests.ts";
import { createUsedMessages } from "./used-messages.ts";

/** Sign-outs that involve the identity provider. They start at this service or at the provider. */
export interface SignOuts {
  /**
   * Returns the URL that ends a session at the provider. Null if the provider has no such address or does not answer, or if its
   * signing key can't be read. Also null if single sign-on is turned off, or if the session belongs to another provider than
   * the configured one.
   *
   * @param origin - The service's own origin. Undefined if it is not configured.
   */
  logoutUrl(session: ProviderSession, origin: string | undefined): Promise<string | null>;
  /**
   * Ends the sessions that a logout token of the OpenID Connect provider names.
   *
   * @returns The number of ended sessions.
   * @throws {Problem} invalidRequest, unavailable; rateLimited after too many rejected tokens of the caller's address
   */
  endByLogoutToken(token: string, caller: Caller): Promise<number>;
  /**
   * Handles a message at the SAML single logout URL, which the browser brings. A LogoutRequest of the provider ends the sessions
   * that it names.
   *
   * @param query - The query string as the browser sent it, without the question mark.
   * @returns For the provider's LogoutRequest, the provider's URL with the LogoutResponse. For the LogoutResponse to a request of
   * this service, `/`: the session has already ended.
   * @throws {Problem} invalidRequest, unavailable
   */
  endBySaml(query: string, origin: string | undefined, caller: Caller): Promise<string>;
  /** Deletes the records of expired messages. */
  cleanUp(): Promise<void>;
}

export function createSignOuts(deps: {
  tables: Tables;
  configurations: Configurations;
  protocols: Record<ProtocolName, Protocol>;
  logoutTokens: LogoutTokens;
  saml: Pick<Saml, "verifyLogout" | "logoutAnswerUrl">;
  federated: Pick<FederatedSignIn, "endSessions">;
  limiter: Pick<RateLimiter, "take">;
  audit: Pick<Audit, "refused">;
  clock: Clock;
}): SignOuts {
  const { configurations, protocols, logoutTokens, saml, federated, limiter, audit } = deps;
  const usedMessages = createUsedMessages("logouts", deps);

  /** Records why a sign-out was rejected, and returns the problem to throw. Returns any other error unchanged. */
  async function recordRejection(error: unknown, caller: Caller): Promise<unknown> {
    if (!isRefused(error)) return error;
    await audit.refused({
      type: "user.signOutRefused",
      caller,
      outcome: "refused",
      target: { type: "sso", id: "logout" },
      details: { reason: error.reason, by: "provider" },
    });
    return error instanceof SamlRefused ? new LogoutRefused(error.reason).problem() : error.problem();
  }

  /**
   * Counts a rejected logout token. Beyond the limit, rejections are not recorded in the audit log either. Accepted ones don't
   * count: a provider sends all of them from a few addresses.
   */
  async function countRejection({ address }: Caller): Promise<void> {
    const { allowed, retryAfterSeconds } = await limiter.take(`address:${address}`);
    if (!allowed) throw retryLater("rateLimited", "Wait for the time in Retry-After.", retryAfterSeconds);
  }

  /**
   * Returns the configuration.
   *
   * @throws {LogoutRefused} otherProtocol, also if single sign-on is turned off.
   */
  async function configurationFor(protocol: ProtocolName): Promise<SsoConfiguration> {
    const config = await configurations.read();
    if (!config.isEnabled || config.providerType !== protocol) throw new LogoutRefused("otherProtocol");
    return config;
  }

  /**
   * Ends sessions by a message that is accepted once. The record is written last: after a crash, a repeated message ends the
   * remaining sessions.
   */
  async function endOnce(
    message: { issuer: string; id: string; endsAt: Date },
    end: () => Promise<number>,
  ): Promise<number> {
    const { issuer, id, endsAt } = message;
    if (await usedMessages.isUsed(issuer, id)) throw new LogoutRefused("used");
    const ended = await end();
    await usedMessages.use(issuer, id, endsAt);
    return ended;
  }

  return {
    async logoutUrl(session, origin) {
      const config = await configurations.read();
      const issuer = config.providerType === "oidc" ? config.oidcIssuer : config.samlIdpEntityId;
      if (!config.isEnabled || issuer !== session.issuer || origin === undefined) return null;
      try {
        return (await protocols[config.providerType].logoutUrl(config, session, origin))?.href ?? null;
      } catch (error) {
        // The signing key can't be read now. The sign-out continues, because the session of this service has already ended.
        if (error instanceof SignInRefused) return null;
        throw error;
      }
    },

    async endByLogoutToken(token, caller) {
      try {
        const message = await logoutTokens.verify(token, await configurationFor("oidc"));
        const { issuer, subject, sessionId } = message;
        return await endOnce(message, () =>
          federated.endSessions(
            {
              issuer,
              subject,
              // Sessions of earlier versions have no `sid`, so a token that also names the person ends them.
              matches: (provider) =>
                sessionId === undefined ||
                provider?.sessionId === sessionId ||
                (subject !== undefined && provider?.sessionId === undefined),
            },
            caller,
          ),
        );
      } catch (error) {
        if (isRefused(error)) await countRejection(caller);
        throw await recordRejection(error, caller);
      }
    },

    async endBySaml(query, origin, caller) {
      const parameters = new URLSearchParams(query);
      if (parameters.has("SAMLResponse") && !parameters.has("SAMLRequest")) return "/";
      try {
        const config = await configurationFor("saml");
        if (origin === undefined) throw new LogoutRefused("noPublicBaseUrl");
        const request = await saml.verifyLogout(config, query, origin);
        const issuer = config.samlIdpEntityId!;
        await endOnce({ issuer, id: request.id, endsAt: request.endsAt }, () =>
          federated.endSessions(
            {
              issuer,
              // The NameID may differ from the attribute that identifies the person here.
              subject: undefined,
              matches: (provider) =>
                provider?.nameId?.value === request.nameId.value &&
                provider.nameId.format === request.nameId.format &&
                (request.sessionIndexes.length === 0 || request.sessionIndexes.includes(provider.sessionId ?? "")),
            },
            caller,
          ),
        );
        return await answerUrl(() => saml.logoutAnswerUrl(config, request, origin));
      } catch (error) {
        throw await recordRejection(error, caller);
      }
    },

    cleanUp: () => usedMessages.cleanUp(),
  };
}

const isRefused = (error: unknown): error is LogoutRefused | SamlRefused | SignInRefused =>
  error instanceof LogoutRefused || error instanceof SamlRefused || error instanceof SignInRefused;

/**
 * Returns the URL with the answer to a LogoutRequest. If no answer can be built, returns the page's path `/`: the sessions have
 * ended, so the sign-out itself succeeded.
 */
async function answerUrl(build: () => Promise<URL>): Promise<string> {
  try {
    return (await build()).href;
  } catch (error) {
    if (error instanceof SamlRefused || error instanceof SignInRefused) return "/";
    throw error;
  }
}
