import type { SsoConfigurationView } from "./api.ts";
import type { LoginsRecord, SsoConfiguration } from "./configuration.ts";
import { expiryOf } from "./saml/certificates.ts";

const certificateView = (certificate: string) => ({ certificate, expiresOn: expiryOf(certificate).toISOString() });

/** Converts the configuration of single sign-on to the form in API responses. */
export const ssoConfigurationView = (
  config: SsoConfiguration,
  logins: LoginsRecord | undefined,
  bootstrapUsername: string | undefined,
): SsoConfigurationView => {
  // Only the default configuration, which nobody saved, has this revision.
  const isSaved = config.revision !== "none";
  return {
    providerType: config.providerType,
    isEnabled: config.isEnabled,
    oidcIssuer: config.oidcIssuer ?? null,
    oidcClientId: config.oidcClientId ?? null,
    oidcClientSecretSet: config.oidcClientSecret !== undefined,
    oidcClientSecretExpiresOn: config.oidcClientSecretExpiresOn ?? null,
    oidcScopes: config.oidcScopes,
    samlEntryPoint: config.samlEntryPoint ?? null,
    samlLogoutUrl: config.samlLogoutUrl ?? null,
    samlIdpEntityId: config.samlIdpEntityId ?? null,
    samlIdpCertificates: (config.samlIdpCertificates ?? []).map(certificateView),
    samlIdAttribute: config.samlIdAttribute ?? null,
    samlSignRequests: config.samlSignRequests ?? false,
    samlServiceCertificate: config.samlServiceCertificate ? certificateView(config.samlServiceCertificate) : null,
    autoCreateUsers: config.autoCreateUsers,
    defaultRole: config.defaultRole ?? null,
    rolesClaim: config.rolesClaim ?? null,
    roleMapping: config.roleMapping ?? null,
    allowedEmailDomains: config.allowedEmailDomains ?? null,
    ssoOnlyMode: config.ssoOnlyMode,
    bootstrapUsername: bootstrapUsername ?? null,
    loginButtonText: config.loginButtonText,
    totalSsoLogins: logins?.total ?? 0,
    lastSuccessfulLoginAt: logins?.lastAt ?? null,
    updatedAt: isSaved ? config.updatedAt : null,
    updatedBy: isSaved ? config.updatedBy : null,
    etag: `"${config.revision}"`,
  };
};
