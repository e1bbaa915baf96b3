import * as z from "zod";
import { ROLES } from "../platform/http/endpoint.ts";
import { DiscoveryDocument } from "./oidc/discovery.ts";

// Schemas of single sign-on (SSO) in the API. The endpoints validate requests with them and generate the API description from
// them.

const instant = z.iso.datetime();
const providerType = z.enum(["oidc", "saml"]).meta({ description: "Protocol: OpenID Connect or SAML." });
const defaultRole = z.enum(["user", "auditor", "operator"], {
  error: "must be user, auditor or operator: map a value of rolesClaim to give the role admin",
});

export const SsoStatus = z
  .object({
    enabled: z.boolean(),
    providerType,
    loginButtonText: z.string().meta({ description: "Label of the sign-in button." }),
    ssoOnlyMode: z.boolean().meta({ description: "Whether password sign-in is disabled." }),
  })
  .meta({ id: "SsoStatus" });

export const SsoConfigurationView = z
  .object({
    providerType,
    isEnabled: z.boolean().meta({ description: "Whether single sign-on is enabled." }),
    oidcIssuer: z.string().nullable().meta({ description: "Issuer of the provider, for OpenID Connect." }),
    oidcClientId: z.string().nullable().meta({ description: "Client ID of this service at the provider." }),
    oidcClientSecretSet: z.boolean().meta({ description: "The secret is never returned." }),
    oidcClientSecretExpiresOn: instant
      .nullable()
      .meta({ description: "Expiry date of the client secret, if it was given." }),
    oidcScopes: z.array(z.string()).meta({ description: "Requested scopes." }),
    samlEntryPoint: z.string().nullable().meta({ description: "Sign-in URL of the provider, for SAML." }),
    samlLogoutUrl: z.string().nullable().meta({
      example: "https://login.example.com/slo",
      description: "Single logout URL of the provider, for SAML. Null: signing out here ends only the session here.",
    }),
    samlIdpEntityId: z.string().nullable().meta({ description: "Entity ID of the identity provider, for SAML." }),
    samlIdpCertificates: z.array(z.object({ certificate: z.string(), expiresOn: instant })).meta({
      description:
        "Signing certificates of the identity provider. Expired certificates stay valid until you remove them.",
    }),
    samlIdAttribute: z.string().nullable().meta({
      description:
        "Attribute that identifies a user permanently. Null: Entra's object identifier, or else a persistent NameID.",
    }),
    samlSignRequests: z.boolean().meta({ description: "Whether requests of this service are signed." }),
    samlServiceCertificate: z
      .object({ certificate: z.string(), expiresOn: instant })
      .nullable()
      .meta({ description: "Certificate of the key that signs requests and decrypts assertions." }),
    autoCreateUsers: z
      .boolean()
      .meta({ description: "Whether a user is created at the first sign-in of an unknown person." }),
    defaultRole: z
      .enum(ROLES)
      .nullable()
      .meta({ description: "Role of people without a match in roleMapping. Null rejects them." }),
    rolesClaim: z.string().nullable().meta({
      description: "Location of the roles: a JSON pointer into the claims, or the name of a claim or attribute.",
    }),
    roleMapping: z
      .record(z.string(), z.enum(ROLES))
      .nullable()
      .meta({ description: "Role for each value of rolesClaim." }),
    allowedEmailDomains: z
      .array(z.string())
      .nullable()
      .meta({ description: "Only people with an e-mail address in these domains can sign in. Null: anyone." }),
    ssoOnlyMode: z
      .boolean()
      .meta({ description: "Whether password sign-in is disabled for everyone except the bootstrap administrator." }),
    bootstrapUsername: z.string().nullable().meta({
      example: "admin",
      description:
        "Username of the bootstrap administrator, from BOOTSTRAP_ADMIN_USERNAME: the only user who can sign in with a password in `ssoOnlyMode`. Null if none is configured.",
    }),
    loginButtonText: z.string().meta({ description: "Label of the sign-in button." }),
    totalSsoLogins: z.int().meta({ description: "Number of sign-ins." }),
    lastSuccessfulLoginAt: instant
      .nullable()
      .meta({ description: "Time of the last sign-in. Null if there was none." }),
    updatedAt: instant.nullable(),
    updatedBy: z.string().nullable(),
    etag: z.string(),
  })
  .meta({ id: "SsoConfiguration" });
export type SsoConfigurationView = z.infer<typeof SsoConfigurationView>;

const samlIdAttribute = z.string().min(1).max(512);
const certificate = z.string().min(1).max(8192);

const address = z.url({
  error: ({ input }) => (input === undefined ? undefined : "must be an address such as https://login.example.com"),
});
const issuer = address.max(2048).meta({ example: "https://login.example.com" });
const clientId = z.string().min(1).max(512);
const clientSecret = z.string().min(1).max(4096).meta({ writeOnly: true, format: "password" });
const scope = z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]{1,256}$/, "must be one scope (RFC 6749, section 3.3)");
const domain = z
  .string()
  .max(253)
  .regex(/^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$/, "must be a domain such as example.com")
  .transform((name) => name.toLowerCase());

/** The SAML identity provider, given by its members or by its metadata. */
const samlProvider = {
  samlEntryPoint: address
    .max(2048)
    .nullable()
    .meta({ description: "Sign-in URL of the provider (HTTP-Redirect binding)." }),
  samlLogoutUrl: address.max(2048).nullable().meta({
    description:
      "Single logout URL of the provider (HTTP-Redirect binding). Used with samlSignRequests, because logout messages must be signed.",
  }),
  samlIdpEntityId: z.string().min(1).max(1024).nullable().meta({ description: "Entity ID of the identity provider." }),
  samlIdpCertificates: z.array(certificate).min(1).max(5).nullable().meta({
    description:
      "Signing certificates of the identity provider, PEM. Add the new certificate before the provider switches to it.",
  }),
  samlIdpMetadataXml: z
    .string()
    .min(1)
    .max(256 * 1024)
    .meta({
      writeOnly: true,
      description: "Metadata of the identity provider. Replaces the four fields above.",
    }),
};

/** A change of the configuration: any subset of members. Omitted members stay unchanged. */
export const SsoChange = z
  .strictObject({
    providerType,
    isEnabled: z.boolean().meta({ description: "Whether single sign-on is enabled." }),
    oidcIssuer: issuer.nullable().meta({
      description:
        "Must match `issuer` in the provider's discovery document exactly. A new issuer requires the client secret again.",
    }),
    oidcClientId: clientId.nullable().meta({ description: "Client ID of this service at the provider." }),
    oidcClientSecret: clientSecret.nullable().meta({ description: "Null for a public client." }),
    oidcClientSecretExpiresOn: instant.nullable().meta({
      description:
        "Expiry date for alerts of type serviceCredentialExpiry. A new secret has no date unless you set one.",
    }),
    oidcScopes: z.array(scope).min(1).max(20).meta({ description: "Requested scopes; openid is always requested." }),
    ...samlProvider,
    samlIdAttribute: samlIdAttribute.nullable().meta({
      description:
        "Attribute that identifies a user permanently. Never an e-mail address. Null: Entra's object identifier, or else a persistent NameID.",
    }),
    samlSignRequests: z.boolean().meta({
      description:
        "`true` creates a key, whose certificate is in GET /auth/sso/metadata and can also encrypt assertions. `false` deletes it.",
    }),
    autoCreateUsers: z
      .boolean()
      .meta({ description: "Whether a user is created at the first sign-in of an unknown person." }),
    defaultRole: defaultRole
      .nullable()
      .meta({ description: "Role of people without a match in roleMapping. Null rejects them." }),
    rolesClaim: z
      .string()
      .min(1)
      .max(512)
      .nullable()
      .meta({ description: "A JSON pointer into the claims, or the name of a claim or attribute." }),
    roleMapping: z
      .record(z.string().min(1).max(512), z.enum(ROLES))
      .refine((mapping) => Object.keys(mapping).length <= 200, "may have at most 200 values")
      .nullable()
      .meta({ description: "Role for each value of rolesClaim, evaluated at every sign-in." }),
    allowedEmailDomains: z
      .array(domain)
      .min(1)
      .max(100)
      .nullable()
      .meta({ description: "Only people with a verified e-mail address in these domains can sign in." }),
    ssoOnlyMode: z.boolean().meta({
      description:
        "Disables password sign-in for everyone except the bootstrap administrator. Requires that an administrator has signed in with this configuration. Changing a field that affects sign-in enables passwords again.",
    }),
    loginButtonText: z.string().min(1).max(64).meta({ description: "Label of the sign-in button." }),
  })
  .partial()
  .meta({ id: "SsoChange" });
export type SsoChange = z.infer<typeof SsoChange>;

/** A configuration to test. Omitted members are taken from the saved configuration. */
export const SsoTest = z
  .strictObject({
    providerType,
    oidcIssuer: issuer.meta({ description: "Issuer of the provider, exactly as in its discovery document." }),
    oidcClientId: clientId.meta({ description: "Client ID of this service at the provider." }),
    oidcClientSecret: clientSecret.meta({
      description: "Client secret. The saved one is used only with the saved issuer.",
    }),
    ...samlProvider,
  })
  .partial()
  .meta({ id: "SsoTest" });
export type SsoTest = z.infer<typeof SsoTest>;

export const SsoTestResult = z
  .object({
    success: z.boolean().meta({ description: "Whether every check passed." }),
    providerType,
    checks: z
      .array(
        z.object({
          // oapi-codegen names constants of Go after values. `Client` is the name of its client.
          name: z
            .enum(["address", "document", "keys", "client"])
            .meta({ "x-enum-varnames": ["CheckedAddress", "CheckedDocument", "CheckedKeys", "CheckedClient"] }),
          passed: z.boolean(),
          detail: z.string().meta({ description: "Result of the check, or how to fix it." }),
        }),
      )
      .meta({ description: "Checks in the order in which they ran." }),
  })
  .meta({ id: "SsoTestResult" });
export type SsoTestResult = z.infer<typeof SsoTestResult>;

export const SsoSwitchedOff = z
  .object({ deleted: z.boolean().meta({ description: "False for a dry run." }) })
  .meta({ id: "SsoSwitchedOff" });

export const SsoDiscovery = z
  .strictObject({ issuerUrl: issuer.meta({ description: "Issuer of the provider: HTTPS and a public address." }) })
  .meta({ id: "SsoDiscovery" });

/** The response of `discover`. */
export const SsoDiscovered = DiscoveryDocument;

export const SsoLogin = z.strictObject({
  returnUrl: z
    .string()
    .optional()
    .meta({ description: "Path of this service to return to. Default: `/`.", example: "/docs" }),
  prompt: z
    .literal("login")
    .optional()
    .meta({ description: "`login` makes the identity provider authenticate the person again, for a step-up." }),
});

/**
 * The form that an identity provider makes a browser post. Any site can post it, so the service trusts only its signed content.
 */
export const SamlCallback = z
  .looseObject({
    SAMLResponse: z.string().optional().meta({ description: "SAML Response in base64." }),
    SAMLart: z
      .string()
      .optional()
      .meta({ description: "Artifact of a provider that uses the artifact binding, which is always rejected." }),
    RelayState: z.string().optional().meta({ description: "State of the sign-in request." }),
  })
  // A post with neither is not recorded, because anyone can send it.
  .refine(({ SAMLResponse, SAMLart }) => SAMLResponse !== undefined || SAMLart !== undefined, {
    path: ["SAMLResponse"],
    message: "is required",
  });

/** The form that an OpenID Connect provider posts to end sessions. Providers may add members of their own. */
export const SsoLogoutToken = z
  .looseObject({
    logout_token: z.string().max(16_384).meta({
      description: "Logout token of OpenID Connect Back-Channel Logout 1.0.",
      example: "eyJhbGciOiJSUzI1NiJ9.e30.c2ln",
    }),
  })
  .meta({ id: "SsoLogoutToken" });

/** The result of a back-channel logout. */
export const SsoSessionsEnded = z
  .object({ endedSessions: z.int().meta({ description: "Number of sessions that ended." }) })
  .meta({ id: "SsoSessionsEnded" });

/** The query of a SAML logout message. Its signature covers the query as it was sent. */
export const SamlLogout = z.looseObject({
  SAMLRequest: z.string().optional().meta({ description: "LogoutRequest of the identity provider." }),
  SAMLResponse: z.string().optional().meta({ description: "LogoutResponse to a request of this service." }),
});

/** The query with which an OpenID Connect provider redirects the browser back. Providers may add members of their own. */
export const SsoCallback = z.looseObject({
  code: z.string().optional(),
  state: z.string().optional(),
  iss: z.string().optional().meta({ description: "Issuer of the provider, if it sends one (RFC 9207)." }),
  error: z.string().optional().meta({ description: "Error code of the provider, returned instead of a code." }),
});
