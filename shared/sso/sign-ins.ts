import type { FederatedSignIn } from "../access/federated-sign-in.ts";
import { identityId } from "../access/user.ts";
import type { Audit } from "../audit/audit.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { Problem, retryLater } from "../platform/http/problem.ts";
import type { RateLimiter } from "../platform/http/rate-limit.ts";
import type { Cookie } from "../platform/http/reply.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { SsoConfiguration } from "./configuration.ts";
import type { Configurations } from "./configurations.ts";
import { emailOf, nameOf, type Person, type SignedInPerson, verifiedDomainOf } from "./person.ts";
import type { Protocol } from "./protocol.ts";
import { asLocation, isOwnPath } from "./return-url.ts";
import { roleOf } from "./roles.ts";
import { SignInRefused, signInRefusedFor } from "./sign-in-refused.ts";
import { bindingCookie, createSignInRequests, type ProtocolName } from "./sign-in-requests.ts";

/** A redirect of the browser, and the cookies to set. */
export interface Redirection {
  location: string;
  cookies: Cookie[];
}

/** A request to the callback: the response of a provider, sent through the browser, and values of the browser itself. */
export interface Arrival {
  protocol: ProtocolName;
  /** Query parameters or form fields. */
  parameters: URLSearchParams;
  /** The value that the provider returns unchanged: `state`, `RelayState`. */
  requestId: string | undefined;
  /** Value of the binding cookie, which shows that this browser started the sign-in. */
  cookie: string | undefined;
  /** `User-Agent` header of the browser. */
  userAgent: string | undefined;
}

/**
 * The two steps of a sign-in with SSO. GET /auth/sso/login calls `begin`, which sends the browser to the provider. The provider
 * sends the browser back to the callback, which calls `complete`: it signs the person in, or records in the audit log why it
 * did not.
 */
export interface SignIns {
  /**
   * Starts a sign-in.
   *
   * @param returnUrl - The path to return to afterwards.
   * @param origin - The service's own origin. Undefined if it is not configured.
   * @param reauthenticate - True if the provider must authenticate the person again.
   * @throws {Problem} invalidRequest (a foreign returnUrl), conflict (single sign-on is not configured), signInFailed,
   * unavailable
   */
  begin(
    returnUrl: string | undefined,
    origin: string | undefined,
    caller: Caller,
    reauthenticate?: boolean,
  ): Promise<Redirection>;
  /**
   * Completes a sign-in. Only a callback of a sign-in that this browser started counts against the sign-in limit of its
   * address. So pages of other sites can't use up the limit with forged callbacks.
   *
   * @throws {Problem} conflict, signInStale, signInFailed, signInRefused, rateLimited, unavailable
   */
  complete(arrival: Arrival, origin: string | undefined, caller: Caller): Promise<Redirection>;
  /** Deletes expired sign-in requests: the rows that `begin` stored. */
  cleanUp(): Promise<void>;
}

export function createSignIns(deps: {
  tables: Tables;
  configurations: Configurations;
  protocols: Partial<Record<ProtocolName, Protocol>>;
  federated: FederatedSignIn;
  limiter: RateLimiter;
  audit: Pick<Audit, "refused">;
  clock: Clock;
  randomness: Randomness;
}): SignIns {
  const { configurations, protocols, federated, audit, clock } = deps;
  const requests = createSignInRequests(deps);

  /**
   * Returns the error to throw. A rejected sign-in (`SignInRefused`) is recorded in the audit log and becomes a problem for the
   * user. Any other error stays as it is.
   */
  async function recordRejection(error: unknown, caller: Caller, person: Person | undefined): Promise<unknown> {
    if (!(error instanceof SignInRefused)) return error;
    const identity = person && { issuer: person.issuer, subject: person.subject };
    await audit.refused({
      type: "user.signInRefused",
      caller,
      outcome: "refused",
      // The audit log counts repeats with the same target, reason and code in one entry, so the target identifies the person.
      target: { type: "ssoIdentity", id: identity ? identityId(identity) : error.reason },
      details: { reason: error.reason, by: "sso", ...error.details, ...identity },
    });
    return error.problem();
  }

  /** Counts a sign-in of the caller's address. @throws {Problem} rateLimited */
  async function countSignIn({ address }: Caller): Promise<void> {
    const { allowed, retryAfterSeconds } = await deps.limiter.take(`address:${address}`);
    if (!allowed)
      throw retryLater("rateLimited", `Wait ${retryAfterSeconds} seconds, then try again.`, retryAfterSeconds);
  }

  /** Signs in a person whom the provider authenticated, with the role of the mapping. @throws {SignInRefused} */
  async function signInPerson(
    config: SsoConfiguration,
    person: SignedInPerson,
    caller: Caller,
    userAgent: string | undefined,
  ) {
    const allowedDomains = config.allowedEmailDomains;
    const domain = verifiedDomainOf(person);
    if (allowedDomains && (domain === undefined || !allowedDomains.includes(domain)))
      throw new SignInRefused("emailDomain");
    const now = clock.now();
    // Only the time from the provider counts: a browser can remove `prompt` and `max_age` from the request (OWASP ASVS 5.0,
    // 6.8.4). If the provider's clock is ahead, `now` counts, so that the sign-in does not count as recent for longer.
    const { authenticatedAt } = person;
    const authenticated = {
      authenticatedAt: authenticatedAt && new Date(Math.min(authenticatedAt.getTime(), now.getTime())).toISOString(),
      identity: { issuer: person.issuer, subject: person.subject },
      name: nameOf(person),
      email: emailOf(person),
      session: person.session,
      create: config.autoCreateUsers,
      role: (currentRole: Parameters<typeof roleOf>[2]) => roleOf(config, person, currentRole),
    };
    const result = await federated.signIn(authenticated, caller, userAgent);
    if ("refused" in result) throw signInRefusedFor(result.refused);
    return result;
  }

  return {
    async begin(returnUrl = "/", origin, caller, reauthenticate = false) {
      const config = await configurations.read();
      const { ownOrigin, protocol } = requireEnabled(config, protocols, origin);
      if (!isOwnPath(returnUrl, ownOrigin)) {
        const message = "must be a path of this service, such as /docs";
        const errors = [{ path: "query.returnUrl", message }];
        throw new Problem("invalidRequest", `The returnUrl ${message}.`, { errors });
      }
      const { providerType, generation } = config;
      const details = { protocol: providerType, returnUrl: asLocation(returnUrl), generation, reauthenticate };
      try {
        const { request, cookie } = await requests.begin(details);
        return { location: (await protocol.begin(config, request, ownOrigin)).href, cookies: [cookie] };
      } catch (error) {
        throw await recordRejection(error, caller, undefined);
      }
    },

    async complete({ protocol: name, parameters, requestId, cookie, userAgent }, origin, caller) {
      const config = await configurations.read();
      const { ownOrigin, protocol } = requireEnabled(config, protocols, origin);
      let person: SignedInPerson | undefined;
      try {
        const request = await requests.complete(name, requestId, cookie, () => countSignIn(caller));
        // A change of the configuration that affects who can sign in starts a new generation. The provider's response was requested
        // under the earlier rules, so it isn't accepted.
        if (name !== config.providerType || request.generation !== config.generation) {
          throw new SignInRefused("changedMeanwhile");
        }
        person = await protocol.complete(config, request, { parameters }, ownOrigin);
        const { user, cookie: sessionCookie } = await signInPerson(config, person, caller, userAgent);
        // The role counts: passwords can be turned off only after an administrator signed in with this configuration.
        await configurations.recordSignIn(config, user.role);
        // An empty value and a lifetime of 0 delete the binding cookie.
        return { location: request.returnUrl, cookies: [sessionCookie, bindingCookie(name, "", 0)] };
      } catch (error) {
        throw await recordRejection(error, caller, person);
      }
    },

    cleanUp: () => requests.cleanUp(),
  };
}

/**
 * Returns the own origin and the protocol of the configured provider.
 *
 * @throws {Problem} conflict if single sign-on is turned off, or the own origin is not configured.
 */
function requireEnabled(
  config: SsoConfiguration,
  protocols: Partial<Record<ProtocolName, Protocol>>,
  ownOrigin: string | undefined,
): { ownOrigin: string; protocol: Protocol } {
  const protocol = protocols[config.providerType];
  if (!config.isEnabled || !protocol || ownOrigin === undefined) {
    throw new Problem("conflict", "Single sign-on is not turned on. Sign in with username and password.");
  }
  return { ownOrigin, protocol };
}
