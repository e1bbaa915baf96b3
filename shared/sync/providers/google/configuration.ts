import * as z from "zod";
import { isRsaKey } from "../shared-schemas.ts";

/** The used members of a service account's key file. `token_uri` is ignored: tokens come only from Google. */
const KeyFile = z.object({
  type: z.literal("service_account"),
  client_email: z.email(),
  private_key_id: z.string().max(128),
  private_key: z.string().max(8192).refine(isRsaKey),
});
export type ServiceAccountKey = z.infer<typeof KeyFile>;

/** Parses the key file of a service account. Returns undefined for other texts. */
export function keyFileIn(text: string): ServiceAccountKey | undefined {
  try {
    return KeyFile.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

export const GoogleConfiguration = z
  .strictObject({
    projectId: z
      .string()
      .regex(/^[a-z][a-z0-9-]{4,28}[a-z0-9]$/, "must be a project's id")
      .describe("Project whose secrets are written."),
    serviceAccountKey: z
      .string()
      .max(16_384)
      .refine((text) => keyFileIn(text) !== undefined, "must be the JSON of a service account's key")
      .describe("The content of the key file of a service account."),
    location: z
      .string()
      .regex(/^[a-z]+-[a-z]+\d{1,2}$/, "must be a location such as europe-west1")
      .optional()
      .describe("Location of new secrets. Default: chosen by Google."),
  })
  .meta({ id: "GoogleSyncConfiguration" });

type Configuration = z.infer<typeof GoogleConfiguration>;
export type GoogleSettings = Omit<Configuration, "serviceAccountKey">;
export type GoogleSecrets = Pick<Configuration, "serviceAccountKey">;
