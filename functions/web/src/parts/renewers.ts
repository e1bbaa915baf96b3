import type { Schemas } from "../api/client.ts";

/** Display texts for who renews a certificate, on the asset's page and in the readiness of certificates. */
export const RENEWERS: Record<Schemas["CertificateReadiness"]["renewedBy"], string> = {
  keyVaultPolicy: "Key Vault policy",
  acmebot: "Acmebot",
  certManager: "cert-manager",
  thisService: "This service",
  observed: "Unknown, but it was renewed regularly",
  none: "No one",
};
