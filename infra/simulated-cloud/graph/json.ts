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
    createdDateTime: toGraphTime(application.createdAt),
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
    keyCredentials: application.keys.map((key, index) => certificateJson(key, index, keysSelected)),
    passwordCredentials: application.secrets.map((secret) => passwordJson(secret)),
    requiredResourceAccess: [],
    web: { homePageUrl: null, logoutUrl: null, redirectUris: [] },
  };
}

/** Formats a service principal: https://learn.microsoft.com/graph/api/resources/serviceprincipal */
export function servicePrincipalJson(application: ApplicationRecord, keysSelected: boolean): Members {
  const signing = application.samlKeys[0];
  return {
    id: application.servicePrincipalId,
    deletedDateTime: null,
    accountEnabled: application.signIn !== "disabled",
    appDisplayName: application.displayName,
    appId: application.appId,
    appOwnerOrganizationId: null,
    createdDateTime: toGraphTime(application.createdAt),
    displayName: application.displayName,
    notes: null,
    preferredTokenSigningKeyThumbprint: signing?.thumbprint.toUpperCase() ?? null,
    servicePrincipalType: "Application",
    signInAudience: application.audience,
    tags: ["WindowsAzureActiveDirectoryIntegratedApp"],
    keyCredentials: application.samlKeys.map((key, index) => certificateJson(key, index, keysSelected)),
    passwordCredentials: [
      ...(application.otherTenant ? application.secrets.map((secret) => passwordJson(secret)) : []),
      // The password of the private key is a separate password credential.
      ...(signing
        ? [
            {
              // A secret needs a value. Here only its hint follows from the value, and it is replaced below.
              ...passwordJson({ ...signing, displayName: signing.displayName, value: "sml" }),
              customKeyIdentifier: Buffer.from(signing.thumbprint, "hex").toString("base64"),
              hint: null,
            },
          ]
        : []),
    ],
  };
}

/**
 * Formats a secret.
 * @param includeValue Whether to include the value, which only the response to `addPassword` contains.
 */
export function passwordJson(
  secret: Pick<SecretRecord, "keyId" | "displayName" | "value" | "startsOn" | "expiresOn">,
  includeValue = false,
): Members {
  return {
    customKeyIdentifier: null,
    displayName: secret.displayName,
    endDateTime: toGraphTime(secret.expiresOn),
    hint: secret.value.slice(0, 3),
    keyId: secret.keyId,
    secretText: includeValue ? secret.value : null,
    startDateTime: toGraphTime(secret.startsOn),
  };
}

/**
 * Formats a certificate. The thumbprint is base64, or hexadecimal for uploads in the portal: here for every other certificate.
 * The certificate itself is included only if it is selected.
 */
function certificateJson(key: KeyRecord, index: number, selected: boolean): Members {
  const bytes = Buffer.from(key.thumbprint, "hex");
  const certificate = createHash("sha512").update(key.thumbprint).digest();
  return {
    customKeyIdentifier: index % 2 === 0 ? key.thumbprint.toUpperCase() : bytes.toString("base64"),
    displayName: key.displayName,
    endDateTime: toGraphTime(key.expiresOn),
    hasExtendedValue: null,
    key: selected ? certificate.toString("base64") : null,
    keyId: key.keyId,
    startDateTime: toGraphTime(key.startsOn),
    type: "AsymmetricX509Cert",
    usage: key.usage,
  };
}

/** Returns the owners of an application, including the given identities of the service if they own it. */
export function ownersOf(application: ApplicationRecord, service: readonly Principal[]): OwnerRecord[] {
  const serviceOwners = application.serviceOwns
    ? service.map(({ objectId }): OwnerRecord => {
        return { id: objectId, kind: "servicePrincipal", displayName: "Credential lifecycle service" };
      })
    : [];
  return [...application.owners, ...serviceOwners];
}

/** Permissions for reading users: with the first only their basic profile, with the others everything. */
const READ_BASIC_USERS = "User.ReadBasic.All";
const READ_USERS = ["User.Read.All", "User.ReadWrite.All", "Directory.Read.All", "Directory.ReadWrite.All"];

/** The basic profile: https://learn.microsoft.com/graph/permissions-reference#userreadbasicall */
const BASIC_PROFILE = ["displayName", "givenName", "mail", "surname", "userPrincipalName"];

/**
 * Formats an owner as a directory object. Members that the caller's permissions don't cover are null:
 * https://learn.microsoft.com/graph/permissions-overview#limited-information-returned-for-inaccessible-member-objects
 */
export function ownerJson({ id, kind, displayName, mail }: OwnerRecord, permissions: readonly string[]): Members {
  const identifying = { "@odata.type": `#microsoft.graph.${kind}`, id };
  if (kind !== "user") return { ...identifying, displayName, appId: null, servicePrincipalType: "ManagedIdentity" };
  const profile = {
    displayName,
    businessPhones: ["+49 30 5550100"],
    givenName: null,
    jobTitle: "Engineer",
    mail: mail ?? null,
    surname: null,
    userPrincipalName: mail,
  };
  const readable = READ_USERS.some((one) => permissions.includes(one))
    ? Object.keys(profile)
    : permissions.includes(READ_BASIC_USERS)
      ? BASIC_PROFILE
      : [];
  const members = Object.entries(profile).map(([name, value]) => [name, readable.includes(name) ? value : null]);
  return { ...identifying, ...Object.fromEntries(members) };
}

/** Formats Unix seconds as an ISO 8601 time. */
export const toGraphTime = (seconds: number): string => `${new Date(seconds * 1000).toISOString().slice(0, 19)}Z`;
