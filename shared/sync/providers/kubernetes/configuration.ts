import * as z from "zod";
import { certificates, credential, serverAddress } from "../members.ts";
import { LABEL } from "./names.ts";

export const KubernetesConfiguration = z
  .strictObject({
    address: serverAddress.describe("Of the API server, such as `https://cluster.example.com:6443`."),
    caCertificate: certificates.optional().describe("What its certificate is verified with, in PEM."),
    token: credential.describe("Of a service account, such as from a Secret of the type service-account-token."),
    namespace: z.string().regex(LABEL, "must be a namespace's name").describe("Where the Secrets lie."),
  })
  .meta({ id: "KubernetesSyncConfiguration" });

type Configuration = z.infer<typeof KubernetesConfiguration>;
export type KubernetesSettings = Omit<Configuration, "token">;
export type KubernetesSecrets = Pick<Configuration, "token">;
