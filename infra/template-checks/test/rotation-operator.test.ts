import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type ApiManagement, createApiManagement } from "../../../shared/platform/azure/api-management.ts";
import { type AppService, createAppService } from "../../../shared/platform/azure/app-service.ts";
import { createArm } from "../../../shared/platform/azure/arm.ts";
import { CloudFailure } from "../../../shared/platform/azure/failure.ts";
import { createIdentity } from "../../../shared/platform/azure/identity.ts";
import { liveIn } from "../../../test/azure/live-cloud.ts";
import { IMPATIENT, recordingLog } from "../../../test/azure/services.ts";
import { parseTemplates } from "../check.ts";
import { readInfraFiles } from "../files.ts";
import { type Grant, grantsOf } from "../grants.ts";

/** The actions of a rotation on the consumers of a secret, checked against the roles of the templates one by one. */

const SUBSCRIPTION = "aaaaaaaa-2222-4222-8222-222222222222";
const ROLE = "rotationOperatorDefinition";
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
const groupOf = (id: string) => id.split("/").slice(0, 5).join("/");

beforeAll(async () => {
  const grants = grantsOf((await parseTemplates(readInfraFiles())).bicep);
  role = grants.find((grant) => grant.role === ROLE)!;
  const live = await liveIn({
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
  ({ cloud } = live);
  const arm = createArm({
    config: live.config,
    identity: createIdentity(live.config),
    log: recordingLog(),
    limits: IMPATIENT,
  });
  appService = createAppService(arm);
  apiManagement = createApiManagement(arm);
});
afterAll(() => cloud?.stop());

/** Every action of a rotation, with the permission that allows it. */
const DONE: Record<string, () => Promise<void>> = {
  "Microsoft.Web/sites/config/write": () => appService.refresh(idOf("app")),
  "Microsoft.Web/sites/slots/config/write": () => appService.refresh(idOf("staging")),
  "Microsoft.Web/sites/restart/action": () => appService.restart(idOf("app")),
  "Microsoft.Web/sites/slots/restart/action": () => appService.restart(idOf("staging")),
  "Microsoft.ApiManagement/service/namedValues/refreshSecret/action": () => apiManagement.refreshSecret(idOf("value")),
};

/** Actions among these that are denied. */
async function refused(actions: readonly string[], scope = `/subscriptions/${SUBSCRIPTION}`): Promise<string[]> {
  cloud.control.allowOnly([{ scope, actions, dataActions: [] }]);
  const found: string[] = [];
  for (const [action, act] of Object.entries(DONE)) {
    try {
      await act();
    } catch (error) {
      if (!(error instanceof CloudFailure) || error.code !== "accessDenied") throw error;
      found.push(action);
    }
  }
  return found;
}

test("the role allows all that a rotation does, holds nothing else, and each of its actions is needed", async () => {
  expect([...role.actions].sort()).toEqual(Object.keys(DONE).sort());
  expect(role.dataActions).toEqual([]);
  expect(await refused(role.actions)).toEqual([]);
  for (const action of role.actions) {
    expect(await refused(role.actions.filter((one) => one !== action))).toEqual([action]);
  }
});

test("the role applies to its resource group only, and is not assigned if no principal is configured", async () => {
  expect(role).toMatchObject({ scope: "rotated", principal: "{identity.principal_id}" });
  const group = groupOf(idOf("app"));
  expect(await refused(role.actions, group)).toEqual([]);
  expect(await refused(role.actions, `${group}-other`)).toEqual(Object.keys(DONE));
  const { bicep } = await parseTemplates(readInfraFiles());
  const given = bicep.get("infra/azure/main.bicep")!.parameters.find(({ name }) => name === "rotationResourceGroupIds");
  expect(given?.defaultValue).toMatchObject({ kind: "array", items: [] });
});

test("it shows no setting and no secret", async () => {
  cloud.control.allowOnly([{ scope: `/subscriptions/${SUBSCRIPTION}`, actions: role.actions, dataActions: [] }]);
  for (const read of [
    appService.settings(idOf("app")),
    appService.references(idOf("app")),
    apiManagement.namedValue(idOf("value")),
  ]) {
    await expect(read).rejects.toMatchObject({ code: "accessDenied" });
  }
});
