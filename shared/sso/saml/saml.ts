import { CloudFailure } from "../../platform/azure/failure.ts";
import type { Clock, Randomness } from "../../platform/runtime.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import type { SsoConfiguration } from "../configuration.ts";
import type { Protocol } from "../protocol.ts";
import { SERVICE_KEY_USE, type SsoSecrets } from "../secrets.ts";
import { SignInRefused } from "../sign-in-refused.ts";
import type { SignInRequest } from "../sign-in-requests.ts";
import { createUsedMessages } from "../used-messages.ts";
import type { LogoutRequest } from "./logout.ts";
import type { LogoutParties } from "./messages.ts";
import { SamlRefused } from "./saml-refused.ts";
import { serviceNamesAt } from "./service-names.ts";

/** The SAML protocol, with the service's metadata and a clean-up. */
export interface Saml extends Protocol {
  /** Returns the service's metadata for identity providers, as XML. @param origin - The service's own origin. */
  metadata(config: SsoConfiguration, origin: string): Promise<string>;
  /**
   * Verifies a LogoutRequest of the identity provider.
   *
   * @param query - The query string as the browser sent it, without the question mark.
   * @throws {SamlRefused}
   */
  verifyLogout(config: SsoConfiguration, query: string, origin: string): Promise<LogoutRequest>;
  /**
   * Returns the identity provider's URL with the answer to its LogoutRequest.
   *
   * @throws {SignInRefused} secretUnreadable
   * @throws {SamlRefused} notSigned if the service has no logout URL of the provider or no key
   */
  logoutAnswerUrl(config: SsoConfiguration, request: LogoutRequest, origin: string): Promise<URL>;
  /** Deletes the records of expired assertions. */
  cleanUp(): Promise<void>;
}

/**
 * SAML 2.0 sign-in: the Web Browser SSO Profile, initiated by this service, with requests by HTTP-Redirect and responses by
 * HTTP-POST. https://docs.oasis-open.org/security/saml/v2.0/saml-profiles-2.0-os.pdf, 4.1
 */
export function createSaml(deps: {
  tables: Tables;
  secrets: Pick<SsoSecrets, "read">;
  clock: Clock;
  randomness: Randomness;
}): Saml {
  const { secrets, clock, randomness } = deps;
  const usedAssertions = createUsedMessages("assertions", deps);

  /** Returns the service's private key, if there is one. */
  async function serviceKey({ samlServiceKey }: SsoConfiguration): Promise<string | undefined> {
    if (!samlServiceKey) return undefined;
    const key = await secrets.read(samlServiceKey, SERVICE_KEY_USE).catch((error: unknown) => {
      if (error instanceof CloudFailure) throw new SignInRefused("secretUnreadable", { code: error.code });
      throw error;
    });
    if (key === undefined) throw new SignInRefused("secretUnreadable", { code: "notFound" });
    return key;
  }

  /** Returns what a logout message needs. Undefined without a logout URL or a key: browsers bring only signed messages. */
  async function logoutParties(config: SsoConfiguration, origin: string): Promise<LogoutParties | undefined> {
    const { samlLogoutUrl, samlIdpEntityId } = config;
    const signingKey = samlLogoutUrl === undefined ? undefined : await serviceKey(config);
    if (signingKey === undefined) return undefined;
    return {
      names: serviceNamesAt(origin),
      idpEntityId: samlIdpEntityId!,
      logoutUrl: samlLogoutUrl!,
      signingKey,
      id: `_${Buffer.from(randomness.bytes(16)).toString("hex")}`,
      issuedAt: clock.now(),
    };
  }

  return {
    async begin(config, request, origin) {
      const { authnRequestUrl } = await import("./messages.ts");
      return authnRequestUrl(serviceNamesAt(origin), {
        id: requestIdOf(request),
        issuedAt: clock.now(),
        relayState: request.id,
        entryPoint: config.samlEntryPoint!,
        idpEntityId: config.samlIdpEntityId!,
        persistentNameId: config.samlIdAttribute === undefined,
        signingKey: await serviceKey(config),
        forceAuthn: request.reauthenticate,
      });
    },

    async complete(config, request, { parameters }, origin) {
      if (parameters.has("SAMLart")) throw new SignInRefused("badResponse", { code: "artifact" });
      const { verifyResponse } = await import("./response.ts");
      const { entityId, acsUrl } = serviceNamesAt(origin);
      const assertion = await verifyResponse(parameters.get("SAMLResponse") ?? "", {
        idpEntityId: config.samlIdpEntityId!,
        certificates: config.samlIdpCertificates!,
        acsUrl,
        spEntityId: entityId,
        requestId: requestIdOf(request),
        now: clock.now(),
        decryptionKey: await serviceKey(config),
        idAttribute: config.samlIdAttribute,
      }).catch((error: unknown) => {
        if (!(error instanceof SamlRefused)) throw error;
        const reason = error.reason === "status" ? "providerRefused" : "badResponse";
        throw new SignInRefused(reason, { code: error.reason });
      });
      const { issuer, subject, attributes, assertionId, endsAt, session, authenticatedAt } = assertion;
      if (!(await usedAssertions.use(issuer, assertionId, endsAt)))
        throw new SignInRefused("used", { code: "assertion" });
      const claims = Object.fromEntries(attributes);
      return { issuer, subject, claims, session: { issuer, ...session }, authenticatedAt };
    },

    async logoutUrl(config, { nameId, sessionId }, origin) {
      const parties = nameId && (await logoutParties(config, origin));
      if (!parties) return undefined;
      const { logoutRequestUrl } = await import("./messages.ts");
      return logoutRequestUrl(parties, { nameId, sessionId });
    },

    async verifyLogout(config, query, origin) {
      const { verifyLogoutRequest } = await import("./logout.ts");
      return verifyLogoutRequest(query, {
        idpEntityId: config.samlIdpEntityId!,
        certificates: config.samlIdpCertificates!,
        destination: serviceNamesAt(origin).logoutUrl,
        now: clock.now(),
      });
    },

    async logoutAnswerUrl(config, request, origin) {
      const parties = await logoutParties(config, origin);
      if (!parties) throw new SamlRefused("notSigned");
      const { logoutResponseUrl } = await import("./messages.ts");
      return logoutResponseUrl(parties, request);
    },

    async metadata({ samlServiceCertificate, samlSignRequests = false }, origin) {
      const { serviceMetadata } = await import("./messages.ts");
      return serviceMetadata(serviceNamesAt(origin), { certificate: samlServiceCertificate, signed: samlSignRequests });
    },

    cleanUp: () => usedAssertions.cleanUp(),
  };
}

/** Returns the id of an AuthnRequest, which must start with a letter or underscore (an XML name). */
const requestIdOf = (request: SignInRequest): string => `_${request.derived("SAML request")}`;
