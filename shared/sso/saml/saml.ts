import { createHash } from "node:crypto";
import * as z from "zod";
import { CloudFailure } from "../../platform/azure/failure.ts";
import type { Clock } from "../../platform/runtime.ts";
import { entity } from "../../platform/storage/entity.ts";
import { RowExists, type Tables } from "../../platform/storage/tables.ts";
import type { SsoConfiguration } from "../configuration.ts";
import type { Protocol } from "../protocol.ts";
import { SERVICE_KEY_USE, type SsoSecrets } from "../secrets.ts";
import { SignInRefused } from "../sign-in-refused.ts";
import type { SignInRequest } from "../sign-in-requests.ts";
import type { VerifiedAssertion } from "./assertion.ts";
import { SamlRefused } from "./saml-refused.ts";
import { serviceNamesAt } from "./service-names.ts";

const PARTITION = "assertions";
/** A row for each accepted assertion until it expires, so that it can't be used again. */
const Assertion = entity("Sso", z.object({ endsAt: z.string() }));

/** The SAML protocol, with the service's metadata and a clean-up. */
export interface Saml extends Protocol {
  /** Returns the service's metadata for identity providers, as XML. @param origin - The service's own origin. */
  metadata(config: SsoConfiguration, origin: string): Promise<string>;
  /** Deletes the records of expired assertions. */
  cleanUp(): Promise<void>;
}

/**
 * SAML 2.0 sign-in: the Web Browser SSO Profile, initiated by this service, with requests by HTTP-Redirect and responses by
 * HTTP-POST. https://docs.oasis-open.org/security/saml/v2.0/saml-profiles-2.0-os.pdf, 4.1
 */
export function createSaml(deps: { tables: Tables; secrets: Pick<SsoSecrets, "read">; clock: Clock }): Saml {
  const { tables, secrets, clock } = deps;

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

  /** Accepts each assertion once, across all instances: of two concurrent inserts, storage accepts one. */
  async function useOnce({ issuer, assertionId, endsAt }: VerifiedAssertion): Promise<void> {
    const key = createHash("sha256").update(`${issuer}\0${assertionId}`).digest("hex");
    try {
      await tables.insert(Assertion, PARTITION, key, { endsAt: endsAt.toISOString() });
    } catch (error) {
      if (error instanceof RowExists) throw new SignInRefused("used", { code: "assertion" });
      throw error;
    }
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
      });
    },

    async complete(config, request, { parameters }, origin) {
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
      await useOnce(assertion);
      const { issuer, subject, attributes } = assertion;
      return { issuer, subject, claims: Object.fromEntries(attributes) };
    },

    async metadata({ samlServiceCertificate, samlSignRequests = false }, origin) {
      const { serviceMetadata } = await import("./messages.ts");
      return serviceMetadata(serviceNamesAt(origin), { certificate: samlServiceCertificate, signed: samlSignRequests });
    },

    async cleanUp() {
      const now = clock.now().getTime();
      for await (const rows of tables.pages(Assertion, { partitionKey: PARTITION, select: ["endsAt"] })) {
        for (const { rowKey, endsAt } of rows) {
          if (Date.parse(endsAt) <= now) await tables.remove(Assertion, PARTITION, rowKey);
        }
      }
    },
  };
}

/** Returns the id of an AuthnRequest, which must start with a letter or underscore (an XML name). */
const requestIdOf = (request: SignInRequest): string => `_${request.derived("SAML request")}`;
