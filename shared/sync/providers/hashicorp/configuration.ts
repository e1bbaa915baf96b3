import * as z from "zod";
import { caCertificate, credential, serverAddress } from "../shared-schemas.ts";

const path = z
  .string()
  .max(256)
  .regex(/^\w[\w.-]*(\/\w[\w.-]*)*$/, "must be a path of letters, digits, _, . and -");

export const HashicorpConfiguration = z
  .strictObject({
    address: serverAddress.describe("Address of the server, for example `https://vault.example.com:8200`."),
    namespace: path.optional().describe("Namespace of Vault Enterprise or HCP."),
    mount: path.optional().describe("Mount path of the KV version 2 engine. Default: `secret`."),
    caCertificate,
    token: credential.optional().describe("A token; or an AppRole by the next three members."),
    roleId: credential.optional().describe("The AppRole's role id."),
    secretId: credential.optional().describe("The AppRole's secret id."),
    authMount: path.optional().describe("Mount path of AppRole. Default: `approle`."),
  })
  .refine(
    ({ token, roleId, secretId }) =>
      token === undefined
        ? roleId !== undefined && secretId !== undefined
        : roleId === undefined && secretId === undefined,
    "must have either token, or roleId and secretId",
  )
  .meta({ id: "HashicorpSyncConfiguration" });

type Configuration = z.infer<typeof HashicorpConfiguration>;
export type HashicorpSettings = Omit<Configuration, "token" | "secretId">;
export type HashicorpSecrets = Pick<Configuration, "token" | "secretId">;

/** Returns the mount path of the KV engine. */
export const mountOf = ({ mount }: HashicorpSettings): string => mount ?? "secret";
/** Returns the mount path of the sign-in with AppRole. */
export const authMountOf = ({ authMount }: HashicorpSettings): string => authMount ?? "approle";
