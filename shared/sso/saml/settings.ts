import { invalidBody } from "../../platform/http/problem.ts";
import type { OutgoingOptions } from "../../platform/outgoing/outgoing.ts";
import type { SsoChange } from "../api.ts";
import type { SsoConfiguration } from "../configuration.ts";
import { readCertificate } from "./certificates.ts";

/** Attributes with email addresses, which change and can be reassigned to other people. */
const EMAIL_ATTRIBUTES = [
  "email",
  "emailaddress",
  "mail",
  "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/emailaddress",
  "urn:oid:0.9.2342.19200300.100.1.3",
];

/**
 * Replaces the metadata in a change with its content, or normalizes the change's certificates to PEM.
 *
 * @throws {Problem} invalidRequest
 */
export async function withSamlMetadata({ samlIdpMetadataXml: xml, ...given }: SsoChange): Promise<SsoChange> {
  if (xml === undefined) {
    const certificates = given.samlIdpCertificates;
    return certificates ? { ...given, samlIdpCertificates: certificates.map(normalizeCertificate) } : given;
  }
  const duplicate = (["samlEntryPoint", "samlIdpEntityId", "samlLogoutUrl", "samlIdpCertificates"] as const).find(
    (name) => name in given,
  );
  if (duplicate) throw invalidBody(duplicate, "is also in samlIdpMetadataXml: set only one of them");
  const { parseIdpMetadata } = await import("./idp-metadata.ts");
  const { entryPoint, entityId, logoutUrl, certificates } = parseIdpMetadata(xml);
  return {
    ...given,
    samlEntryPoint: entryPoint,
    samlIdpEntityId: entityId,
    samlLogoutUrl: logoutUrl ?? null,
    samlIdpCertificates: certificates,
  };
}

function normalizeCertificate(text: string, index: number): string {
  const certificate = readCertificate(text);
  if (typeof certificate === "string") throw invalidBody(`samlIdpCertificates.${index}`, certificate);
  return certificate.pem;
}

/**
 * Throws if the SAML members of a configuration are invalid, even if single sign-on is turned off.
 *
 * @throws {Problem} invalidRequest
 */
export function checkSaml(config: SsoConfiguration, addressRules: OutgoingOptions): void {
  const { providerType, isEnabled, samlIdAttribute } = config;
  for (const member of ["samlEntryPoint", "samlLogoutUrl"] as const) {
    const url = config[member];
    const problem = url === undefined ? undefined : browserUrlProblem(url, addressRules);
    if (problem !== undefined) throw invalidBody(member, problem);
  }
  if (samlIdAttribute !== undefined && EMAIL_ATTRIBUTES.includes(samlIdAttribute.toLowerCase()))
    throw invalidBody(
      "samlIdAttribute",
      "must not be an e-mail address: its next owner would be signed in as this user",
    );
  if (providerType !== "saml" || !isEnabled) return;
  for (const member of ["samlEntryPoint", "samlIdpEntityId", "samlIdpCertificates"] as const) {
    if (config[member] === undefined)
      throw invalidBody(member, "is required to enable single sign-on; samlIdpMetadataXml contains it");
  }
}

/** Returns the problem of a provider's URL. It may be an internal address, because only browsers connect to it. */
function browserUrlProblem(text: string, addressRules: OutgoingOptions): string | undefined {
  const url = new URL(text);
  if (url.protocol !== "https:" && !(url.protocol === "http:" && addressRules.plainHttp(url)))
    return "must start with https://";
  if (url.username !== "" || url.password !== "") return "must not contain a user name or password";
  return url.hash === "" ? undefined : "must not have a fragment";
}
