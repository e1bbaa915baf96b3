import { invalidBody } from "../../platform/http/problem.ts";
import type { OutgoingOptions } from "../../platform/outgoing/outgoing.ts";
import type { SsoChange } from "../api.ts";
import type { SsoConfiguration } from "../configuration.ts";
import { readCertificate } from "./certificates.ts";

/** Attributes with email addresses, which change and can be reassigned to other people. */
const EMAILS = [
  "email",
  "emailaddress",
  "mail",
  "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/emailaddress",
  "urn:oid:0.9.2342.19200300.100.1.3",
];

/**
 * Replaces metadata in the request with its content, and normalizes the certificates.
 *
 * @throws {Problem} invalidRequest
 */
export async function withSamlMetadata({ samlIdpMetadataXml: xml, ...given }: SsoChange): Promise<SsoChange> {
  if (xml === undefined) {
    const certificates = given.samlIdpCertificates;
    return certificates ? { ...given, samlIdpCertificates: certificates.map(normalized) } : given;
  }
  const doubled = (["samlEntryPoint", "samlIdpEntityId", "samlIdpCertificates"] as const).find((name) => name in given);
  if (doubled) throw invalidBody(doubled, "is in samlIdpMetadataXml already: give one of them");
  const { parseIdpMetadata } = await import("./idp-metadata.ts");
  const { entryPoint, entityId, certificates } = parseIdpMetadata(xml);
  return { ...given, samlEntryPoint: entryPoint, samlIdpEntityId: entityId, samlIdpCertificates: certificates };
}

function normalized(text: string, at: number): string {
  const read = readCertificate(text);
  if (typeof read === "string") throw invalidBody(`samlIdpCertificates.${at}`, read);
  return read.pem;
}

/**
 * Rejects an invalid configuration, even if single sign-on is turned off.
 *
 * @throws {Problem} invalidRequest
 */
export function checkSaml(config: SsoConfiguration, targets: OutgoingOptions): void {
  const { providerType, isEnabled, samlEntryPoint, samlIdAttribute } = config;
  if (samlEntryPoint !== undefined) {
    const problem = entryPointProblem(samlEntryPoint, targets);
    if (problem !== undefined) throw invalidBody("samlEntryPoint", problem);
  }
  if (samlIdAttribute !== undefined && EMAILS.includes(samlIdAttribute.toLowerCase()))
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

/** Only browsers connect to this URL, so it may be an internal address. */
function entryPointProblem(text: string, targets: OutgoingOptions): string | undefined {
  const url = new URL(text);
  if (url.protocol !== "https:" && !(url.protocol === "http:" && targets.plainHttp(url)))
    return "must begin with https://";
  if (url.username !== "" || url.password !== "") return "must have no user name or password in it";
  return url.hash === "" ? undefined : "must have no fragment";
}
