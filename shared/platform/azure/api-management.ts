import * as z from "zod";
import type { Arm, ArmCall, Listed } from "./arm.ts";
import { ownName, resourceName, resourcePath } from "./resource-id.ts";
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

/** Every method throws `CloudFailure`. https://learn.microsoft.com/rest/api/apimanagement/named-value */
export interface ApiManagement {
  /** @param id - Resource ID of the service. */
  namedValues(serviceId: string, signal?: AbortSignal): Promise<Listed<NamedValue>>;
  /** @param id - Resource ID of the named value. */
  namedValue(id: string, signal?: AbortSignal): Promise<NamedValue>;
  certificates(serviceId: string, signal?: AbortSignal): Promise<Listed<ApiManagementCertificate>>;
  /**
   * Makes the service read the key vault secret of a named value again, which it otherwise does every four hours. The refresh
   * continues after the answer. `lastStatus` of the named value shows its outcome and time.
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
