import * as z from "zod";
import type { Arm, ArmCall, ListResult } from "./arm.ts";
import { nameWithoutParents, resourceName, resourcePath } from "./resource-id.ts";
import { DEPENDENCY_READER } from "./watch-roles.ts";

/** A named value of an API Management service, without its value. */
export interface NamedValue {
  /** Resource ID. */
  id: string;
  name: string;
  displayName: string;
  /** The key vault reference. Undefined if the value was entered directly. */
  keyVault?: KeyVaultContract;
}

/** A reference to a key vault secret, and the outcome of its last refresh. */
export interface KeyVaultContract {
  /** Address of the key vault secret, with or without a version. */
  secretIdentifier: string;
  /** The outcome of the last refresh from the key vault. */
  lastStatus?: {
    /** `Success`, or an error code. */
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

/**
 * Reads what API Management services take from key vaults. Every method throws `CloudFailure`.
 * https://learn.microsoft.com/rest/api/apimanagement/named-value
 */
export interface ApiManagement {
  /** @param serviceId - Resource ID of the API Management service. */
  namedValues(serviceId: string, signal?: AbortSignal): Promise<ListResult<NamedValue>>;
  /** @param id - Resource ID of the named value. */
  namedValue(id: string, signal?: AbortSignal): Promise<NamedValue>;
  certificates(serviceId: string, signal?: AbortSignal): Promise<ListResult<ApiManagementCertificate>>;
  /**
   * Makes API Management read the key vault secret of a named value now instead of at its next read, which happens every four
   * hours. The refresh continues after the response. `lastStatus` of the named value shows the outcome and its time.
   */
  refreshSecret(id: string): Promise<void>;
}

const API_VERSION = "2024-05-01";

const SERVICE = "microsoft.apimanagement/service";
const NAMED_VALUE = "microsoft.apimanagement/service/namedvalues";

/** Completes "Give the service's identity …" in the remedy of a failure. */
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
  /** `below` is the path after that of the resource. `grant` is what the remedy names if the call is denied. */
  const call = (id: string, type: string, below: string, operation: string, grant: string): ArmCall => ({
    path: `${resourcePath(id, type)}${below}`,
    apiVersion: API_VERSION,
    target: { operation, resource: `API Management ${resourceName(id)}`, grant },
  });

  return {
    async namedValues(serviceId, signal) {
      const request = call(serviceId, SERVICE, "/namedValues", "list the named values", DEPENDENCY_READER);
      const { entries, unreadable } = await arm.list({ ...request, signal }, namedValueAnswer);
      return { entries: entries.map(namedValueOf), unreadable };
    },

    async namedValue(id, signal) {
      const request = call(id, NAMED_VALUE, "", "read the named value", DEPENDENCY_READER);
      return namedValueOf(await arm.call({ ...request, signal }, namedValueAnswer));
    },

    async certificates(serviceId, signal) {
      const request = call(serviceId, SERVICE, "/certificates", "list the certificates", DEPENDENCY_READER);
      const { entries, unreadable } = await arm.list({ ...request, signal }, certificateAnswer);
      const certificates = entries.map(({ id, name, properties }) => ({
        id,
        name,
        ...contractOf(properties.keyVault),
      }));
      return { entries: certificates, unreadable };
    },

    async refreshSecret(id) {
      const request = call(id, NAMED_VALUE, "/refreshSecret", "refresh the named value's secret", CONTRIBUTOR);
      await arm.execute({ ...request, method: "POST" });
    },
  };
}

const namedValueOf = ({ id, name, properties }: z.infer<typeof namedValueAnswer>): NamedValue => ({
  id,
  name: nameWithoutParents(name),
  displayName: properties.displayName ?? nameWithoutParents(name),
  ...contractOf(properties.keyVault),
});

function contractOf(keyVaultMember: z.infer<typeof keyVault>): { keyVault?: KeyVaultContract } {
  if (!keyVaultMember?.secretIdentifier) return {};
  const { code, timeStampUtc: at } = keyVaultMember.lastStatus ?? {};
  return {
    keyVault: {
      secretIdentifier: keyVaultMember.secretIdentifier,
      ...(code && { lastStatus: { code, ...(at && { at }) } }),
    },
  };
}
