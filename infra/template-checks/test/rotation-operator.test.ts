import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type ApiManagement, createApiManagement } from "../../../shared/platform/azure/api-management.ts";
import { type AppService, createAppService } from "../../../shared/platform/azure/app-service.ts";
import { createArm } from "../../../shared/platform/azure/arm.ts";
import { CloudFailure } from "../../../shared/platform/azure/failure.ts";
import { createIdentity } from "../../../shared/platform/azure/identity.ts";
import { startTestCloud } from "../../../test/azure/live-cloud.ts";
import { recordingLog, SHORT_WAITS } from "../../../test/azure/services.ts";
import { parseTemplates } from "../check.ts";
import { readInfraFiles } from "../files.ts";
import { type Grant, grantsOf } from "../grants.ts";

/**
 * Tests the custom role that the templates create for rotation ("rotation operator"). After a rotation, the service makes the
 * consumers of a secret (web apps, API Management) read the new value. The role must allow exactly these actions.
 */

const SUBSCRIPTION = "aaaaaaaa-2222-4222-8222-222222222222";
const ROLE_DEFINITION = "rotationOperatorDefinition";
/** A web app or slot whose setting DB references the vault secret. */
const site = {
  kind: "app",
  identity: { system: true },
  settings: { DB: "@Microsoft.KeyVault(VaultName=kv-used;SecretName=db)" },
};
const secretIdentifier = "{uri:kv-used}/secrets/db";

let cloud: Cloud;
let role: Grant;
let appService: AppService;
let apiManagement: ApiManagement;
const idOf = (name: string) => cloud.control.consumers.idOf(name);
const resourceGroupOf = (id: string) => id.split("/").slice(0, 5).join("/");

beforeAll(async () => {
  const grants = grantsOf((await parseTemplates(readInfraFiles())).bicep);
  role = grants.find((grant) => grant.role === ROLE_DEFINITION)!;
  const testCloud = await startTestCloud({
    company: {
      subscriptions: [
        {
          name: "Used",
          id: SUBSCRIPTION,
          vaults: [{ name: "kv-used", secrets: [{ name: "db" }] }],
          resources: [
            { type: "Microsoft.Web/sites", name: "app", ...site, children: { slots: [{ name: "staging", ...site }] } },
            {
              type: "Microsoft.ApiManagement/service",
              name: "apim",
              identity: { system: true },
              children: {
                namedValues: [{ name: "value", properties: { secret: true, keyVault: { secretIdentifier } } }],
              },
            },
          ],
        },
      ],
    },
  });
  ({ cloud } = testCloud);
  const arm = createArm({
    config: testCloud.config,
    identity: createIdentity(testCloud.config),
    log: recordingLog(),
    limits: SHORT_WAITS,
  });
  appService = createAppService(arm);
  apiManagement = createApiManagement(arm);
});
afterAll(() => cloud?.stop());

/** Every action of a rotation on a consumer, by the permission that it needs. */
const ROTATION_ACTIONS: Record<string, () => Promise<void>> = {
  "Microsoft.Web/sites/config/write": () => appService.refresh(idOf("app")),
  "Microsoft.Web/sites/slots/config/write": () => appService.refresh(idOf("staging")),
  "Microsoft.Web/sites/restart/action": () => appService.restart(idOf("app")),
  "Microsoft.Web/sites/slots/restart/action": () => appService.restart(idOf("staging")),
  "Microsoft.ApiManagement/service/namedValues/refreshSecret/action": () => apiManagement.refreshSecret(idOf("value")),
};

/** Tries every action of a rotation with a role that has these permissions. Returns the permissions that were missing. */
async function missingPermissions(
  actions: readonly string[],
  scope = `/subscriptions/${SUBSCRIPTION}`,
): Promise<string[]> {
  cloud.control.allowOnly([{ scope, actions, dataActions: [] }]);
  const missing: string[] = [];
  for (const [permission, runAction] of Object.entries(ROTATION_ACTIONS)) {
    try {
      await runAction();
    } catch (error) {
      if (!(error instanceof CloudFailure) || error.code !== "accessDenied") throw error;
      missing.push(permission);
    }
  }
  return missing;
}

test("the role has exactly the permissions that a rotation needs", async () => {
  expect([...role.actions].sort()).toEqual(Object.keys(ROTATION_ACTIONS).sort());
  expect(role.dataActions).toEqual([]);
  expect(await missingPermissions(role.actions)).toEqual([]);
  for (const action of role.actions) {
    expect(await missingPermissions(role.actions.filter((one) => one !== action))).toEqual([action]);
  }
});

test("the role applies only to the configured resource groups, of which there are none by default", async () => {
  // `rotated` is the templates' name of the resource groups of the parameter `rotationResourceGroupIds`.
  expect(role).toMatchObject({ scope: "rotated", principal: "{identity.principal_id}" });
  const group = resourceGroupOf(idOf("app"));
  expect(await missingPermissions(role.actions, group)).toEqual([]);
  expect(await missingPermissions(role.actions, `${group}-other`)).toEqual(Object.keys(ROTATION_ACTIONS));
  const { bicep } = await parseTemplates(readInfraFiles());
  const parameter = bicep
    .get("infra/azure/main.bicep")!
    .parameters.find(({ name }) => name === "rotationResourceGroupIds");
  expect(parameter?.defaultValue).toMatchObject({ kind: "array", items: [] });
});

test("the role cannot read app settings or secrets", async () => {
  cloud.control.allowOnly([{ scope: `/subscriptions/${SUBSCRIPTION}`, actions: role.actions, dataActions: [] }]);
  for (const read of [
    appService.settings(idOf("app")),
    appService.references(idOf("app")),
    apiManagement.namedValue(idOf("value")),
  ]) {
    await expect(read).rejects.toMatchObject({ code: "accessDenied" });
  }
});
