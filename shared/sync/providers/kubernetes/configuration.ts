import * as z from "zod";
import { caCertificate, credential, serverAddress } from "../shared-schemas.ts";
import { LABEL } from "./names.ts";

export const KubernetesConfiguration = z
  .strictObject({
    address: serverAddress.describe("Address of the API server, such as `https://cluster.example.com:6443`."),
    caCertificate,
    token: credential.describe("Token of a service account, for example from a Secret of type service-account-token."),
    namespace: z.string().regex(LABEL, "must be a namespace's name").describe("Namespace of the Secrets."),
  })
  .meta({ id: "KubernetesSyncConfiguration" });

type Configuration = z.infer<typeof KubernetesConfiguration>;
export type KubernetesSettings = Omit<Configuration, "token">;
export type KubernetesSecrets = Pick<Configuration, "token">;
