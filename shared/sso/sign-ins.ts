import type { FederatedSignIn } from "../access/federated-sign-in.ts";
import { identityId } from "../access/user.ts";
import type { Audit } from "../audit/audit.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { Problem } from "../platform/http/problem.ts";
import type { Cookie } from "../platform/http/reply.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { SsoConfiguration } from "./configuration.ts";
import type { Configurations } from "./configurations.ts";
import { emailOf, nameOf, type Person, verifiedDomainOf } from "./person.ts";
import type { Protocol } from "./protocol.ts";
import { asLocation, isOwnPath } from "./return-url.ts";
import { roleOf } from "./roles.ts";
import { SignInRefused, signInRefusedFor } from "./sign-in-refused.ts";
import { bindingCookie, createSignInRequests, type ProtocolName } from "./sign-in-requests.ts";

/** A redirect of the browser and its cookie. */
export interface Redirection {
  location: string;
  cookies: Cookie[];
}

/** The response of a provider, sent through a browser, and values of the browser itself. */
export interface Arrival {
  protocol: ProtocolName;
  /** Query parameters or form fields. */
  parameters: URLSearchParams;
  /** The value that the provider returns unchanged: `state`, `RelayState`. */
  requestId: string | undefined;
  /** Value of the binding cookie. */
  cookie: string | undefined;
  /** `User-Agent` header of the browser. */
  userAgent: string | undefined;
}

/** The two steps of a single sign-on in a browser. Texts of rejections are in `REFUSALS`. */
export interface SignIns {
  /**
   * Starts a sign-in. @param returnUrl - The path to return to afterwards.
   * @param origin - The service's own origin. Undefined if it is not configured.
   * @throws {Problem} invalidRequest (a foreign returnUrl), conflict (single sign-on is not configured), signInFailed,
   * unavailable
   */
  begin(returnUrl: string | undefined, origin: string | undefined, caller: Caller): Promise<Redirection>;
  /** Completes a sign-in. @throws {Problem} conflict, signInStale, signInFailed, signInRefused, unavailable */
  complete(arrival: Arrival, origin: string | undefined, caller: Caller): Promise<Redirection>;
  /** Deletes expired requests. */
  cleanUp(): Promise<void>;
}

export function createSignIns(deps: {
  tables: Tables;
  configurations: Configurations;
  protocols: Partial<Record<ProtocolName, Protocol>>;
  federated: FederatedSignIn;
  audit: Pick<Audit, "refused">;
  clock: Clock;
  randomness: Randomness;
}): SignIns {
  const { configurations, protocols, federated, audit } = deps;
  const requests = createSignInRequests(deps);

  /** Records why a sign-in was rejected, and throws the problem for the user. */
  async function problemOf(error: unknown, caller: Caller, person: Person | undefined): Promise<unknown> {
    if (!(error instanceof SignInRefused)) return error;
    const identity = person && { issuer: person.issuer, subject: person.subject };
    await audit.refused({
      type: "user.signInRefused",
      caller,
      outcome: "refused",
      // Repeats with one target share an audit entry, so the target must identify the person.
      target: { type: "ssoIdentity", id: identity ? identityId(identity) : error.reason },
      details: { reason: error.reason, by: "sso", ...error.details, ...identity },
    });
    return error.problem();
  }

  async function enter(config: SsoConfiguration, person: Person, caller: Caller, userAgent: string | undefined) {
    const domains = config.allowedEmailDomains;
    const domain = verifiedDomainOf(person);
    if (domains && !(domain !== undefined && domains.includes(domain))) throw new SignInRefused("emailDomain");
    const arriving = {
      pair: { issuer: person.issuer, subject: person.subject },
      name: nameOf(person),
      email: emailOf(person),
      create: config.autoCreateUsers,
      role: (now: Parameters<typeof roleOf>[2]) => roleOf(config, person, now),
    };
    const entered = await federated.signIn(arriving, caller, userAgent);
    if ("refused" in entered) throw signInRefusedFor(entered.refused);
    return entered;
  }

  return {
    async begin(returnUrl = "/", origin, caller) {
      const config = await configurations.read();
      const { own, protocol } = ready(config, protocols, origin);
      if (!isOwnPath(returnUrl, own)) {
        const message = "must be a path of this service, such as /docs";
        const errors = [{ path: "query.returnUrl", message }];
        throw new Problem("invalidRequest", `The returnUrl ${message}.`, { errors });
      }
      const { providerType, generation } = config;
      const how = { protocol: providerType, returnUrl: asLocation(returnUrl), generation };
      try {
        const { request, cookie } = await requests.begin(how);
        return { location: (await protocol.begin(config, request, own)).href, cookies: [cookie] };
      } catch (error) {
        throw await problemOf(error, caller, undefined);
      }
    },

    async complete({ protocol: name, parameters, requestId, cookie, userAgent }, origin, caller) {
      const config = await configurations.read();
      const { own, protocol } = ready(config, protocols, origin);
      let person: Person | undefined;
      try {
        const request = await requests.complete(name, requestId, cookie);
        if (name !== config.providerType || request.generation !== config.generation) {
          throw new SignInRefused("changedMeanwhile");
        }
        person = await protocol.complete(config, request, { parameters }, own);
        const entered = await enter(config, person, caller, userAgent);
        await configurations.signedIn(config, entered.user.role);
        return { location: request.returnUrl, cookies: [entered.cookie, bindingCookie(name, "", 0)] };
      } catch (error) {
        throw await problemOf(error, caller, person);
      }
    },

    cleanUp: () => requests.cleanUp(),
  };
}

/** @throws {Problem} conflict if single sign-on is not usable */
function ready(
  config: SsoConfiguration,
  protocols: Partial<Record<ProtocolName, Protocol>>,
  own: string | undefined,
): { own: string; protocol: Protocol } {
  const protocol = protocols[config.providerType];
  if (!config.isEnabled || !protocol || own === undefined) {
    throw new Problem("conflict", "Single sign-on is not turned on. Sign in with username and password.");
  }
  return { own, protocol };
}
