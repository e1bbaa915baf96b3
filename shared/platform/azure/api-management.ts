import * as z from "zod";
import type { Arm, ArmCall, Listed } from "./arm.ts";
import { ownName, resourceName, resourcePath } from "./resource-id.ts";
import { DEPENDENCY_READER } from "./watch-roles.ts";

/** A named value of an API Management service. Never its value. */
export interface NamedValue {
  /** Resource id. */
  id: string;
  name: string;
  displayName: string;
  /** What it takes from a key vault; undefined when its value was given. */
  keyVault?: KeyVaultContract;
}

export interface KeyVaultContract {
  /** Address of the key vault secret, with or without a version. */
  secretIdentifier: string;
  /** How the last reading of it ended. */
  lastStatus?: {
    /** `Success`, or what went wrong. */
    code: string;
    /** ISO 8601. */
    at?: string;
  };
}

/** A certificate of an API Management service. */
export interface ApiManagementCertificate {
  id: string;
  name: string;
  keyVault?: KeyVaultContract;
}

/** Every method throws `CloudFailure`. https://learn.microsoft.com/rest/api/apimanagement/named-value */
export interface ApiManagement {
  /** By the resource id of the service. */
  namedValues(serviceId: string, signal?: AbortSignal): Promise<Listed<NamedValue>>;
  /** By its own resource id. */
  namedValue(id: string, signal?: AbortSignal): Promise<NamedValue>;
  certificates(serviceId: string, signal?: AbortSignal): Promise<Listed<ApiManagementCertificate>>;
  /**
   * Has the service read the key vault secret of a named value again; by itself it does so every four hours. It goes on after
   * the answer: `lastStatus` of the named value shows how it ended and when.
   */
  refreshSecret(id: string): Promise<void>;
}

const API_VERSION = "2024-05-01";

const SERVICE = "microsoft.apimanagement/service";
const NAMED_VALUE = "microsoft.apimanagement/service/namedvalues";

const CONTRIBUTOR = "the role API Management Service Contributor on the service";

const text = z.string().nullish();
const keyVault = z
  .object({
    secretIdentifier: text,
    lastStatus: z.object({ code: text, timeStampUtc: text }).nullish(),
  })
  .nullish();
const namedValueAnswer = z.object({
  id: z.string(),
  name: z.string(),
  properties: z.object({ displayName: text, keyVault }),
});
const certificateAnswer = z.object({ id: z.string(), name: z.string(), properties: z.object({ keyVault }) });

export function createApiManagement(arm: Arm): ApiManagement {
  const call = (id: string, type: string, below: string, operation: string, grant: string): ArmCall => ({
    path: `${resourcePath(id, type)}${below}`,
    apiVersion: API_VERSION,
    target: { operation, resource: `API Management ${resourceName(id)}`, grant },
  });

  return {
    async namedValues(serviceId, signal) {
      const asked = call(serviceId, SERVICE, "/namedValues", "list the named values", DEPENDENCY_READER);
      const { entries, unreadable } = await arm.list({ ...asked, signal }, namedValueAnswer);
      return { entries: entries.map(namedValueOf), unreadable };
    },

    async namedValue(id, signal) {
      const asked = call(id, NAMED_VALUE, "", "read the named value", DEPENDENCY_READER);
      return namedValueOf(await arm.call({ ...asked, signal }, namedValueAnswer));
    },

    async certificates(serviceId, signal) {
      const asked = call(serviceId, SERVICE, "/certificates", "list the certificates", DEPENDENCY_READER);
      const { entries, unreadable } = await arm.list({ ...asked, signal }, certificateAnswer);
      const certificates = entries.map(({ id, name, properties }) => ({
        id,
        name,
        ...contractOf(properties.keyVault),
      }));
      return { entries: certificates, unreadable };
    },

    async refreshSecret(id) {
      const asked = call(id, NAMED_VALUE, "/refreshSecret", "refresh the named value's secret", CONTRIBUTOR);
      await arm.act({ ...asked, method: "POST" });
    },
  };
}

const namedValueOf = ({ id, name, properties }: z.infer<typeof namedValueAnswer>): NamedValue => ({
  id,
  name: ownName(name),
  displayName: properties.displayName ?? ownName(name),
  ...contractOf(properties.keyVault),
});

function contractOf(answered: z.infer<typeof keyVault>): { keyVault?: KeyVaultContract } {
  if (!answered?.secretIdentifier) return {};
  const { code, timeStampUtc: at } = answered.lastStatus ?? {};
  return {
    keyVault: {
      secretIdentifier: answered.secretIdentifier,
      ...(code && { lastStatus: { code, ...(at && { at }) } }),
    },
  };
}
