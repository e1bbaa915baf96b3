import * as z from "zod";
import { ROLES } from "../http/endpoint.ts";
import { DiscoveryDocument } from "./oidc/discovery.ts";

/** Single sign-on as the API shows and takes it. */

const instant = z.iso.datetime();
const providerType = z.enum(["oidc", "saml"]).meta({ description: "The protocol: OpenID Connect or SAML." });
const defaultRole = z.enum(["user", "auditor", "operator"], {
  error: "must be user, auditor or operator: to admin, map a value of rolesClaim",
});

export const SsoStatus = z
  .object({
    enabled: z.boolean(),
    providerType,
    loginButtonText: z.string().meta({ description: "What the button says." }),
    ssoOnlyMode: z.boolean().meta({ description: "Whether passwords are switched off." }),
  })
  .meta({ id: "SsoStatus" });

export const SsoConfigurationView = z
  .object({
    providerType,
    isEnabled: z.boolean().meta({ description: "Whether people can sign in by it." }),
    oidcIssuer: z.string().nullable().meta({ description: "The provider's issuer, for OpenID Connect." }),
    oidcClientId: z.string().nullable().meta({ description: "What this service is registered as with the provider." }),
    oidcClientSecretSet: z.boolean().meta({ description: "The secret itself is never returned." }),
    oidcClientSecretExpiresOn: instant
      .nullable()
      .meta({ description: "When the client secret ends, where that was given." }),
    oidcScopes: z.array(z.string()).meta({ description: "The scopes that are asked for." }),
    samlEntryPoint: z.string().nullable().meta({ description: "Where browsers are sent to sign in, for SAML." }),
    samlIdpEntityId: z.string().nullable().meta({ description: "The identity provider's entity id, for SAML." }),
    samlIdpCertificates: z.array(z.object({ certificate: z.string(), expiresOn: instant })).meta({
      description: "What the identity provider signs with. One that has ended goes on counting until it is taken away.",
    }),
    samlIdAttribute: z.string().nullable().meta({
      description:
        "The attribute that names a person for good; null: Entra's object identifier, else a persistent NameID.",
    }),
    samlSignRequests: z.boolean().meta({ description: "Whether our requests are signed." }),
    samlServiceCertificate: z
      .object({ certificate: z.string(), expiresOn: instant })
      .nullable()
      .meta({ description: "Of the key that requests are signed with, and assertions may be encrypted for." }),
    autoCreateUsers: z.boolean().meta({ description: "Whether people who are unknown here become users." }),
    defaultRole: z
      .enum(ROLES)
      .nullable()
      .meta({ description: "The role of whoever has none by roleMapping; null refuses them." }),
    rolesClaim: z.string().nullable().meta({
      description: "Where the roles stand: a JSON pointer into the claims, or a claim's or attribute's name.",
    }),
    roleMapping: z
      .record(z.string(), z.enum(ROLES))
      .nullable()
      .meta({ description: "The role that each value at rolesClaim gives." }),
    allowedEmailDomains: z
      .array(z.string())
      .nullable()
      .meta({ description: "Only who has an address there may sign in; null: everybody." }),
    ssoOnlyMode: z
      .boolean()
      .meta({ description: "Whether passwords are switched off for all but the bootstrap administrator." }),
    loginButtonText: z.string().meta({ description: "What the button says." }),
    totalSsoLogins: z.int().meta({ description: "How many sign-ins there were by it." }),
    lastSuccessfulLoginAt: instant
      .nullable()
      .meta({ description: "When somebody last signed in by it; null where nobody has." }),
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
const scope = z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]{1,256}$/, "must be one scope, as RFC 6749, 3.3 has it");
const domain = z
  .string()
  .max(253)
  .regex(/^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$/, "must be a domain such as example.com")
  .transform((name) => name.toLowerCase());

/** The identity provider for SAML, member by member or by its metadata. */
const samlProvider = {
  samlEntryPoint: address
    .max(2048)
    .nullable()
    .meta({ description: "Where browsers are sent to sign in, by HTTP-Redirect." }),
  samlIdpEntityId: z.string().min(1).max(1024).nullable().meta({ description: "The identity provider's entity id." }),
  samlIdpCertificates: z.array(certificate).min(1).max(5).nullable().meta({
    description: "PEM; all that the identity provider may sign with, several while it goes over to another.",
  }),
  samlIdpMetadataXml: z
    .string()
    .min(1)
    .max(256 * 1024)
    .meta({
      writeOnly: true,
      description: "The identity provider's metadata, in place of the three above, which are taken from it.",
    }),
};

/** Any subset; what is left out stays as it is. */
export const SsoChange = z
  .strictObject({
    providerType,
    isEnabled: z.boolean().meta({ description: "Whether people can sign in by it." }),
    oidcIssuer: issuer.nullable().meta({
      description: "Exactly as the provider's discovery document has it. A changed one needs the secret again.",
    }),
    oidcClientId: clientId.nullable().meta({ description: "What this service is registered as with the provider." }),
    oidcClientSecret: clientSecret.nullable().meta({ description: "Null for a public client." }),
    oidcClientSecretExpiresOn: instant.nullable().meta({
      description: "Told by the alerts of the type serviceCredentialExpiry. A new secret has none unless it is given.",
    }),
    oidcScopes: z.array(scope).min(1).max(20).meta({ description: "Asked for; openid always is." }),
    ...samlProvider,
    samlIdAttribute: samlIdAttribute.nullable().meta({
      description:
        "The attribute that names a person for good; never an e-mail address. Null: Entra's object identifier, else a persistent NameID.",
    }),
    samlSignRequests: z.boolean().meta({
      description:
        "True makes a key of our own, whose certificate is in GET /auth/sso/metadata; assertions may be encrypted for it too. False drops it.",
    }),
    autoCreateUsers: z.boolean().meta({ description: "Whether people who are unknown here become users." }),
    defaultRole: defaultRole
      .nullable()
      .meta({ description: "Of whoever has no role by roleMapping. Null refuses them." }),
    rolesClaim: z
      .string()
      .min(1)
      .max(512)
      .nullable()
      .meta({ description: "A JSON pointer into the claims, or a claim's or attribute's name." }),
    roleMapping: z
      .record(z.string().min(1).max(512), z.enum(ROLES))
      .refine((mapping) => Object.keys(mapping).length <= 200, "may have at most 200 values")
      .nullable()
      .meta({ description: "The role that each value at rolesClaim gives; worked out at every sign-in." }),
    allowedEmailDomains: z
      .array(domain)
      .min(1)
      .max(100)
      .nullable()
      .meta({ description: "Only who has an address there, verified by the provider, may sign in." }),
    ssoOnlyMode: z.boolean().meta({
      description:
        "Switches passwords off for all but the bootstrap administrator. Possible after an administrator has signed in by this very configuration; a change of what decides sign-in switches it off.",
    }),
    loginButtonText: z.string().min(1).max(64).meta({ description: "What the button says." }),
  })
  .partial()
  .meta({ id: "SsoChange" });
export type SsoChange = z.infer<typeof SsoChange>;

/** What is left out is taken from the saved configuration. */
export const SsoTest = z
  .strictObject({
    providerType,
    oidcIssuer: issuer.meta({ description: "The provider's issuer, exactly as its discovery document has it." }),
    oidcClientId: clientId.meta({ description: "What this service is registered as with the provider." }),
    oidcClientSecret: clientSecret.meta({
      description: "The client secret. The saved one is used only with the saved issuer.",
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
          name: z.enum(["address", "document", "keys", "client"]),
          passed: z.boolean(),
          detail: z.string().meta({ description: "What was found, or what to do about it." }),
        }),
      )
      .meta({ description: "What was tried, in this order." }),
  })
  .meta({ id: "SsoTestResult" });
export type SsoTestResult = z.infer<typeof SsoTestResult>;

export const SsoSwitchedOff = z
  .object({ deleted: z.boolean().meta({ description: "False where it was only looked at." }) })
  .meta({ id: "SsoSwitchedOff" });

export const SsoDiscovery = z
  .strictObject({ issuerUrl: issuer.meta({ description: "The provider's issuer: https, and a public address." }) })
  .meta({ id: "SsoDiscovery" });

/** What `discover` answers. */
export const SsoDiscovered = DiscoveryDocument;

export const SsoLogin = z.strictObject({
  returnUrl: z
    .string()
    .optional()
    .meta({ description: "A path of this service to come back to; `/` when left out.", example: "/docs" }),
});

/** What an identity provider has a browser post. It may be sent by any site: it counts for what is signed in it. */
export const SamlCallback = z.looseObject({
  SAMLResponse: z.string().meta({ description: "The Response in base64." }),
  RelayState: z.string().optional().meta({ description: "The id of the sign-in, as the request had it." }),
});

/** What providers add is theirs to choose. */
export const SsoCallback = z.looseObject({
  code: z.string().optional(),
  state: z.string().optional(),
  iss: z.string().optional().meta({ description: "The provider's issuer, where it sends one: RFC 9207." }),
  error: z.string().optional().meta({ description: "In place of a code: the provider did not sign anybody in." }),
});
