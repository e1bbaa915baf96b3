import * as z from "zod";
import { credential, isRsaKey, serverAddress } from "../shared-schemas.ts";

const id = z.string().regex(/^\d{1,20}$/, "must be a number");

export const GithubConfiguration = z
  .strictObject({
    apiUrl: serverAddress
      .optional()
      .describe(
        "Address of a GitHub Enterprise Server, such as `https://github.example.com/api/v3`. Default: github.com.",
      ),
    token: credential
      .optional()
      .describe("A fine-grained personal access token; or a GitHub App by the next three members."),
    appId: id.optional().describe("The GitHub App's id."),
    installationId: id.optional().describe("The id of its installation in the organization."),
    privateKey: z
      .string()
      .max(8192)
      .refine(isRsaKey, "must be an RSA key of 2048 bits or more in PEM")
      .optional()
      .describe("A private key of the GitHub App, in PEM."),
  })
  .refine(({ token, appId, installationId, privateKey }) => {
    const app = [appId, installationId, privateKey].filter((member) => member !== undefined).length;
    return token === undefined ? app === 3 : app === 0;
  }, "must have either token, or appId, installationId and privateKey")
  .meta({ id: "GithubSyncConfiguration" });

type Configuration = z.infer<typeof GithubConfiguration>;
export type GithubSettings = Omit<Configuration, "token" | "privateKey">;
export type GithubSecrets = Pick<Configuration, "token" | "privateKey">;
