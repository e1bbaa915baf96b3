// Formats applications and service principals as Microsoft Graph's JSON.

import { createHash } from "node:crypto";
import type { Principal } from "../tokens.ts";
import type { ApplicationRecord, KeyRecord, OwnerRecord, SecretRecord } from "./records.ts";

type Members = Record<string, unknown>;

/** Formats an application with the supported members of https://learn.microsoft.com/graph/api/resources/application */
export function applicationJson(application: ApplicationRecord, keysSelected: boolean): Members {
  return {
    id: application.objectId,
    deletedDateTime: null,
    appId: application.appId,
    applicationTemplateId: null,
    disabledByMicrosoftStatus: null,
    createdDateTime: instant(application.createdAt),
    displayName: application.displayName,
    description: null,
    groupMembershipClaims: null,
    identifierUris: [],
    notes: application.notes ?? null,
    publisherDomain: "acme.example",
    serviceManagementReference: null,
    signInAudience: application.audience,
    tags: application.tags,
    appRoles: [],
    keyCredentials: application.keys.map((key, index) => keyShape(key, index, keysSelected)),
    passwordCredentials: application.secrets.map((secret) => passwordJson(secret)),
    requiredResourceAccess: [],
    web: { homePageUrl: null, logoutUrl: null, redirectUris: [] },
  };
}

/** https://learn.microsoft.com/graph/api/resources/serviceprincipal */
export function servicePrincipalJson(application: ApplicationRecord, keysSelected: boolean): Members {
  const signing = application.samlKeys[0];
  return {
    id: application.servicePrincipalId,
    deletedDateTime: null,
    accountEnabled: application.signIn !== "disabled",
    appDisplayName: application.displayName,
    appId: application.appId,
    appOwnerOrganizationId: null,
    createdDateTime: instant(application.createdAt),
    displayName: application.displayName,
    notes: null,
    preferredTokenSigningKeyThumbprint: signing?.thumbprint.toUpperCase() ?? null,
    servicePrincipalType: "Application",
    signInAudience: application.audience,
    tags: ["WindowsAzureActiveDirectoryIntegratedApp"],
    keyCredentials: application.samlKeys.map((key, index) => keyShape(key, index, keysSelected)),
    // The password of the private key is a separate password credential.
    passwordCredentials: signing
      ? [
          {
            ...passwordJson({ ...signing, displayName: signing.displayName, value: "sml" }),
            customKeyIdentifier: Buffer.from(signing.thumbprint, "hex").toString("base64"),
            hint: null,
          },
        ]
      : [],
  };
}

/**
 * Formats a secret.
 * @param withText the value, which only the response to `addPassword` contains
 */
export function passwordJson(
  secret: Pick<SecretRecord, "keyId" | "displayName" | "value" | "startsOn" | "expiresOn">,
  withText = false,
): Members {
  return {
    customKeyIdentifier: null,
    displayName: secret.displayName,
    endDateTime: instant(secret.expiresOn),
    hint: secret.value.slice(0, 3),
    keyId: secret.keyId,
    secretText: withText ? secret.value : null,
    startDateTime: instant(secret.startsOn),
  };
}

/**
 * Formats a certificate. The thumbprint is base64, or hexadecimal for uploads in the portal. The certificate itself is included
 * only if it is selected.
 */
function keyShape(key: KeyRecord, index: number, selected: boolean): Members {
  const bytes = Buffer.from(key.thumbprint, "hex");
  const certificate = createHash("sha512").update(key.thumbprint).digest();
  return {
    customKeyIdentifier: index % 2 === 0 ? key.thumbprint.toUpperCase() : bytes.toString("base64"),
    displayName: key.displayName,
    endDateTime: instant(key.expiresOn),
    hasExtendedValue: null,
    key: selected ? certificate.toString("base64") : null,
    keyId: key.keyId,
    startDateTime: instant(key.startsOn),
    type: "AsymmetricX509Cert",
    usage: key.usage,
  };
}

/** Returns the owners of an application, including the service's identities if they own it. */
export function ownersOf(application: ApplicationRecord, service: readonly Principal[]): OwnerRecord[] {
  const own = application.serviceOwns
    ? service.map(({ objectId }): OwnerRecord => {
        return { id: objectId, kind: "servicePrincipal", displayName: "Credential lifecycle service" };
      })
    : [];
  return [...application.owners, ...own];
}

export function ownerJson({ id, kind, displayName, mail }: OwnerRecord): Members {
  const same = { "@odata.type": `#microsoft.graph.${kind}`, id, displayName };
  return kind === "user"
    ? { ...same, businessPhones: [], givenName: null, jobTitle: null, mail: mail ?? null, userPrincipalName: mail }
    : { ...same, appId: null, servicePrincipalType: "ManagedIdentity" };
}

export const instant = (seconds: number): string => `${new Date(seconds * 1000).toISOString().slice(0, 19)}Z`;
