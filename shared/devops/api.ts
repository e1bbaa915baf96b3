import * as z from "zod";
import { singleLine } from "../platform/http/single-line.ts";

// Schemas of the Azure DevOps integration in the API. The endpoints validate requests with them and generate the API
// description from them.

const projectIds = z.array(singleLine(256)).max(1000);

/** Formats: https://learn.microsoft.com/azure/key-vault/general/about-keys-secrets-certificates#object-identifiers */
const vaultName = z.string().regex(/^[A-Za-z][A-Za-z0-9-]{1,22}[A-Za-z0-9]$/, "must be a key vault's name");
const secretName = z.string().regex(/^[0-9A-Za-z-]{1,127}$/, "must be a secret's name");

const copy = z.strictObject({
  projectId: z.guid().transform((id) => id.toLowerCase()),
  groupId: z.int().positive().max(2_147_483_647).meta({ description: "ID of the variable group." }),
  variable: singleLine(512).meta({ description: "Name of a secret variable of the group." }),
  vaultName,
  secretName,
});

export const DevopsSettingsView = z
  .object({
    orgUrl: z.string().nullable().meta({ description: "Null while the integration is disabled." }),
    enabled: z.boolean(),
    projectIds: z
      .array(z.string())
      .meta({ description: "IDs or names of the scanned projects. Empty: all projects that the service can access." }),
    copies: z
      .array(
        z.object({
          projectId: z.string(),
          groupId: z.int().meta({ description: "ID of the variable group." }),
          variable: z.string().meta({ description: "Name of the variable." }),
          vaultName: z.string(),
          secretName: z.string(),
        }),
      )
      .meta({
        description:
          "Secret variables that hold a copy of a key vault's secret: a rotation that also updates the consumers replaces them.",
      }),
    updatedAt: z.iso.datetime().nullable(),
    updatedBy: z.string().nullable(),
    etag: z.string(),
  })
  .meta({ id: "DevopsSettings" });
export type DevopsSettingsView = z.infer<typeof DevopsSettingsView>;

export const DevopsSettingsChange = z
  .strictObject({
    orgUrl: z.string().max(2048).nullable().meta({
      description:
        "https://dev.azure.com/{organization} or https://{organization}.visualstudio.com. Null disables the integration.",
      example: "https://dev.azure.com/acme",
    }),
  })
  .meta({ id: "DevopsSettingsChange" });

export const DevopsProjectsChange = z
  .strictObject({
    projectIds: projectIds.meta({ description: "IDs or names. Empty: all projects that the service can access." }),
  })
  .meta({ id: "DevopsProjectsChange" });

export const DevopsCopiesChange = z
  .strictObject({
    copies: z
      .array(copy)
      .max(500)
      .superRefine((copies, context) => {
        const variableKeys = new Set<string>();
        for (const [index, { projectId, groupId, variable }] of copies.entries()) {
          const variableKey = `${projectId}/${groupId}/${variable.toLowerCase()}`;
          if (variableKeys.has(variableKey))
            context.addIssue({
              code: "custom",
              path: [index],
              message: "names a variable that is already in the list",
            });
          variableKeys.add(variableKey);
        }
      })
      .meta({ description: "The complete list. Variables that are not included are no longer treated as copies." }),
  })
  .meta({ id: "DevopsCopiesChange" });

export const DevopsProject = z
  .object({
    id: z.string(),
    name: z.string(),
    selected: z.boolean().meta({ description: "Whether the project is scanned." }),
  })
  .meta({ id: "DevopsProject" });
export type DevopsProject = z.infer<typeof DevopsProject>;

const STEPS = ["signIn", "projects", "project", "variableGroups", "serviceConnections"] as const;

export const DevopsTest = z
  .object({
    orgUrl: z.string().meta({ description: "Organization that was tested." }),
    ok: z.boolean().meta({ description: "Whether every step passed." }),
    testedAt: z.iso.datetime(),
    identity: z
      .object({ id: z.string(), name: z.string().nullable() })
      .nullable()
      .meta({ description: "Identity of the service in the organization. Null when the service is not a member." }),
    steps: z.array(
      z.object({
        step: z.enum(STEPS).meta({
          description:
            "`signIn`: the service is a member of the organization. `projects`: it can access projects. `project`: it can access this project of projectIds. Other steps test reads in this project.",
        }),
        project: z.string().nullable().meta({ description: "Name of the project, or the entry of projectIds." }),
        ok: z.boolean(),
        found: z
          .int()
          .nullable()
          .meta({ description: "Number of items that the service can access. Null when the step failed." }),
        changeable: z.int().nullable().meta({
          description: "Number of items that the service can change, as rotations require. Null when the step failed.",
        }),
        code: z.string().nullable().meta({
          description: "Failure code, such as unauthorized, accessDenied or notFound. Null when the step passed.",
        }),
        detail: z.string().nullable(),
        remedy: z.string().nullable(),
      }),
    ),
    projectsNotTested: z
      .int()
      .meta({ description: "Number of projects that were not tested, because one test covers at most 20." }),
  })
  .meta({ id: "DevopsTest" });
export type DevopsTest = z.infer<typeof DevopsTest>;
export type DevopsTestStep = DevopsTest["steps"][number];
