import * as z from "zod";
import type { Arm } from "./arm.ts";
import { resourceName, resourcePath } from "./resource-id.ts";
import { DEPENDENCY_READER } from "./watch-roles.ts";

/** The key that encrypts a server's databases. */
export interface EncryptionProtector {
  /** `ServiceManaged` or `AzureKeyVault`. */
  serverKeyType: string;
  /** Address of the key vault key with its version. */
  uri?: string;
  /** True if the server uses the newest version. */
  autoRotationEnabled: boolean;
}

/** Reads SQL servers. Every method throws `CloudFailure`. https://learn.microsoft.com/rest/api/sql/encryption-protectors */
export interface Sql {
  encryptionProtector(serverId: string, signal?: AbortSignal): Promise<EncryptionProtector>;
}

const protector = z.object({
  properties: z.object({
    serverKeyType: z.string(),
    uri: z.string().nullish(),
    autoRotationEnabled: z.boolean().nullish(),
  }),
});

export function createSql(arm: Arm): Sql {
  return {
    async encryptionProtector(serverId, signal) {
      const { properties } = await arm.call(
        {
          path: `${resourcePath(serverId, "microsoft.sql/servers")}/encryptionProtector/current`,
          apiVersion: "2021-11-01",
          target: {
            operation: "read the encryption protector",
            resource: `SQL server ${resourceName(serverId)}`,
            grant: DEPENDENCY_READER,
          },
          signal,
        },
        protector,
      );
      return {
        serverKeyType: properties.serverKeyType,
        ...(properties.uri && { uri: properties.uri }),
        autoRotationEnabled: properties.autoRotationEnabled ?? false,
      };
    },
  };
}
