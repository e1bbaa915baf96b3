/**
 * Longest validity and longest use of a secret or key, in days: the parameters of the Microsoft Cloud Security Benchmark
 * v2 (preview), policy set MCSBv2 1.3.0-preview.
 * https://github.com/Azure/azure-policy/tree/master/built-in-policies/policySetDefinitions/Security%20Center
 */
export const MAX_VALIDITY_DAYS = 730;
export const MAX_ACTIVE_DAYS = 730;
/**
 * Longest validity of a private certificate in months: CIS 5.0.0 8.3.11 and the default of Azure Policy
 * 0a075868-4c26-42ef-914c-5bc007359560.
 */
export const MAX_CERTIFICATE_MONTHS = 12;
/**
 * Longest validity of a publicly trusted TLS certificate, by the day from which it is valid: ballot SC-081v3 of the CA/Browser
 * Forum, section 6.3.2 of the Baseline Requirements. https://cabforum.org/2025/04/11/ballot-sc081v3
 */
export const PUBLIC_CERTIFICATE_LIMITS = [
  // Valid since 2020-09-01. Certificates from before have expired.
  { from: "2020-09-01", days: 398 },
  { from: "2026-03-15", days: 200 },
  { from: "2027-03-15", days: 100 },
  { from: "2029-03-15", days: 47 },
] as const;
type PublicCertificateLimit = (typeof PUBLIC_CERTIFICATE_LIMITS)[number];

/** Returns the limit of a public certificate that is valid from this time in milliseconds since 1970. */
export const publicLimitAt = (notBefore: number): PublicCertificateLimit =>
  PUBLIC_CERTIFICATE_LIMITS.findLast(({ from }) => Date.parse(from) <= notBefore) ?? PUBLIC_CERTIFICATE_LIMITS[0];

/** Returns the limit that follows at a later date. Undefined after the last. */
export const nextPublicLimit = (limit: PublicCertificateLimit): PublicCertificateLimit | undefined =>
  PUBLIC_CERTIFICATE_LIMITS[PUBLIC_CERTIFICATE_LIMITS.indexOf(limit) + 1];

const AVERAGE_MONTH_DAYS = 365.2425 / 12;
/** Returns the whole months that fit into this number of days. Key Vault's policies state a validity in months. */
export const monthsWithin = (days: number): number => Math.floor(days / AVERAGE_MONTH_DAYS);
/**
 * Longest validity of an application's client secret, in days. Microsoft recommends less than 12 months:
 * https://learn.microsoft.com/entra/identity-platform/how-to-add-credentials
 */
export const MAX_CLIENT_SECRET_DAYS = 365;
/**
 * Longest validity of an application's certificate, in days: twelve months with a leap day, as for certificates in key vaults.
 */
export const MAX_APPLICATION_CERTIFICATE_DAYS = 366;
