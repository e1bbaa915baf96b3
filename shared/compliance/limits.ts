/**
 * Longest validity and longest use of a secret or key, in days: the parameters of the Microsoft Cloud Security Benchmark
 * v2 (preview), policy set MCSBv2 1.3.0-preview.
 * https://github.com/Azure/azure-policy/tree/master/built-in-policies/policySetDefinitions/Security%20Center
 */
export const MAX_VALIDITY_DAYS = 730;
export const MAX_ACTIVE_DAYS = 730;
/**
 * Longest validity of a certificate in months: CIS 5.0.0 8.3.11 and the default of Azure Policy
 * 0a075868-4c26-42ef-914c-5bc007359560.
 */
export const MAX_CERTIFICATE_MONTHS = 12;
/**
 * Longest validity of an application's client secret, in days. Microsoft recommends less than 12 months:
 * https://learn.microsoft.com/entra/identity-platform/how-to-add-credentials
 */
export const MAX_CLIENT_SECRET_DAYS = 365;
/**
 * Longest validity of an application's certificate, in days: twelve months with a leap day, as for certificates in key vaults.
 */
export const MAX_APPLICATION_CERTIFICATE_DAYS = 366;
