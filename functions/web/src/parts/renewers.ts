import type { Schemas } from "../api/client.ts";

/** Names of the renewers of certificates, as in the service's messages and reports. */
export const RENEWERS = {
  keyVaultPolicy: "Key Vault policy",
  acmebot: "Acmebot",
  certManager: "cert-manager",
  thisService: "This service",
  observed: "Unknown, but renewed regularly",
  none: "No one",
} as const satisfies Record<Schemas["CertificateReadiness"]["renewedBy"], string>;
