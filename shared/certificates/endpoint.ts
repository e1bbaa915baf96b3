import { createHash } from "node:crypto";
import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { keyEnd, keyText } from "../platform/storage/keys.ts";
import { DAY_SECONDS, HOUR_SECONDS } from "../platform/time.ts";

/**
 * The stored record of an endpoint: a host and port at which a certificate of a key vault is served, with the result of the last
 * handshake. All rows are in one partition. Row keys:
 *
 * | key | rows |
 * |---|---|
 * | `e\|<vault>\|<certificate>\|p<slot>` | endpoints that people added. The slots limit their number. |
 * | `e\|<vault>\|<certificate>\|d<hash>` | endpoints that a discovery of dependencies found |
 */
const TABLE = "CertificateEndpoints";
export const ENDPOINTS = "endpoints";

/** Maximum number of endpoints that people can add to a certificate, so that the service can't be used as a port scanner. */
export const MAX_ADDED = 5;
/** Maximum number of endpoints of a certificate that a discovery finds. */
export const MAX_DISCOVERED = 50;
export const DEFAULT_PORT = 443;

/** Platforms that serve certificates of key vaults. `other`: a person or a program installs the certificate. */
export const PLATFORMS = [
  "appService",
  "applicationGateway",
  "frontDoor",
  "apiManagement",
  "containerApps",
  "other",
] as const;
export type Platform = (typeof PLATFORMS)[number];

/**
 * Seconds within which a platform serves a new version of a certificate.
 *
 * - App Service: https://learn.microsoft.com/azure/app-service/configure-ssl-certificate#renew-a-certificate-imported-from-key-vault
 * - Application Gateway: https://learn.microsoft.com/azure/application-gateway/key-vault-certs
 * - Front Door: https://learn.microsoft.com/azure/frontdoor/standard-premium/how-to-configure-https-custom-domain
 * - API Management: https://learn.microsoft.com/azure/api-management/configure-custom-domain
 * - Container Apps: https://learn.microsoft.com/azure/container-apps/key-vault-certificates-manage
 * - Others: no documentation. A day is enough time for a person to install a certificate.
 */
export const PICK_UP_SECONDS: Record<Platform, number> = {
  appService: DAY_SECONDS,
  applicationGateway: 4 * HOUR_SECONDS,
  frontDoor: 3 * DAY_SECONDS,
  apiManagement: 4 * HOUR_SECONDS,
  containerApps: 12 * HOUR_SECONDS,
  other: DAY_SECONDS,
};

/** Problems that a handshake can show. */
export const ENDPOINT_PROBLEMS = [
  "oldCertificate",
  "otherCertificate",
  "otherName",
  "incompleteChain",
  "expired",
  "unreachable",
  "blocked",
] as const;
export type EndpointProblem = (typeof ENDPOINT_PROBLEMS)[number];

export const EndpointRecord = z.object({
  vaultName: z.string(),
  /** Name of the certificate. */
  name: z.string(),
  /** Lower case. */
  host: z.string(),
  port: z.int(),
  platform: z.enum(PLATFORMS),
  /** The resource that serves the certificate. Only for endpoints that a discovery found. */
  resource: z.object({ id: z.string(), name: z.string() }).optional(),
  addedAt: z.string(),
  addedBy: z.string(),
  /** Time of the last check. Absent before the first check. The following members are its results. */
  checkedAt: z.string().optional(),
  /** Serial number of the served certificate. Kept while the endpoint can't be reached. */
  serial: z.string().optional(),
  /** Time of the first check that found this serial number. */
  since: z.string().optional(),
  expiresOn: z.string().optional(),
  protocol: z.string().optional(),
  /** Whether the vault's current version is served. Absent if unknown. */
  current: z.boolean().optional(),
  /** For another version: the time from which the platform should serve the current version. */
  dueAt: z.string().optional(),
  problems: z.array(z.enum(ENDPOINT_PROBLEMS)).optional(),
  /** Why the endpoint could not be reached. */
  failure: z.string().optional(),
  /** Number of checks in a row that did not reach the endpoint. */
  failures: z.int().optional(),
  /** Time of the check since which the endpoint has a problem that alerts are about. */
  staleSince: z.string().optional(),
});
export type EndpointRecord = z.infer<typeof EndpointRecord>;
export const Endpoints = entity(TABLE, EndpointRecord);

const ALL = "e|";
/** Returns the start of the keys of all endpoints of a certificate. */
const certificatePrefix = ({ vaultName, name }: { vaultName: string; name: string }): string =>
  `${ALL}${keyText(vaultName.toLowerCase())}|${keyText(name.toLowerCase())}|`;
/** Returns the range of the endpoints of a certificate, or of all certificates. */
export function endpointRange(certificate?: { vaultName: string; name: string }) {
  const prefix = certificate ? certificatePrefix(certificate) : ALL;
  return { partitionKey: ENDPOINTS, from: prefix, before: keyEnd(prefix) };
}

export const addedKey = (certificate: { vaultName: string; name: string }, slot: number): string =>
  `${certificatePrefix(certificate)}p${slot}`;
export const discoveredKey = (certificate: { vaultName: string; name: string }, host: string, port: number): string =>
  `${certificatePrefix(certificate)}d${createHash("sha256").update(`${host}:${port}`).digest("base64url").slice(0, 22)}`;
/** Returns whether a discovery found the endpoint. Otherwise a person added it. */
export const isDiscovered = (rowKey: string): boolean => rowKey.slice(rowKey.lastIndexOf("|") + 1).startsWith("d");

/** Queue of messages that check endpoints. */
export const QUEUE = "endpoint-checks";
/** Maximum number of endpoints in one message: they are checked within two minutes, even if each takes the whole time limit. */
export const KEYS_PER_MESSAGE = 25;
export const CheckMessage = z.object({
  /** Row keys of the endpoints. */
  keys: z.array(z.string().max(1024)).max(KEYS_PER_MESSAGE),
});
export type CheckMessage = z.infer<typeof CheckMessage>;

/** A DNS name: labels of letters, digits and `-`. The last label has a letter, so an IPv4 address is no name. */
const HOST =
  /^(?=.{1,253}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*(?=[a-z0-9-]*[a-z])[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
/** Returns whether a text is a host name in lower case. A wildcard is none. */
export const isHostName = (text: string): boolean => HOST.test(text);
