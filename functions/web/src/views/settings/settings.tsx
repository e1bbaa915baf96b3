import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { Card } from "../../parts/card.tsx";
import { Operate } from "../../parts/operate.tsx";
import { QueryResult } from "../../parts/query-result.tsx";
import { View } from "../../parts/view.tsx";
import { CATEGORIES } from "./categories.ts";
import { labelOf } from "./labels.ts";
import { Retention } from "./retention.tsx";
import { ScopeChange } from "./scope-change.tsx";
import { ONLY_PREVIEW, Setting } from "./setting.tsx";

/** The Settings page: the runtime settings with their values and sources, and the retention of histories. */
export default function Settings() {
  const settings = api.useQuery("get", "/api/settings/all", {});
  return (
    <View title="Settings">
      <QueryResult of={settings}>
        {(all) => (
          <>
            <Text>
              A value that is set on this page applies first, then one from App Configuration, then the environment
              variable, then the default. A changed value takes effect within 30 seconds unless the setting says
              otherwise.
            </Text>
            {CATEGORIES.map((category) => (
              <Card key={category.member} title={category.title}>
                {all[category.member].map((setting) => (
                  <Setting key={setting.key} setting={setting} category={category} />
                ))}
              </Card>
            ))}
            <div>
              <Operate
                operation="removeAllOverrides"
                title="Reset all settings"
                action="Reset all settings"
                preview={{
                  action: "Preview changes",
                  isRequired: true,
                  load: async (_, reset) => <Resets of={await reset({ params: ONLY_PREVIEW })} />,
                }}
                submit={async (_, reset) => <Resets of={await reset({})} />}
              >
                <Text>
                  Deletes all values that were set on this page. Then the values from App Configuration apply, or else
                  those from environment variables, or else the defaults. You can't undo this.
                </Text>
              </Operate>
            </div>
          </>
        )}
      </QueryResult>
      <Card title="Logs and histories">
        <Retention />
      </Card>
    </View>
  );
}

/** The settings that a reset of all settings would change (`deleted` is false, in the preview) or has changed. */
const Resets = ({ of: { deleted, keys, scopeChange } }: { of: Schemas["RemovedOverrides"] }) => (
  <>
    <Text block>
      {keys.length === 0
        ? "No value was set on this page, so there is nothing to reset."
        : `${deleted ? "Settings that were reset" : "Settings to reset"}: ${keys.map(labelOf).join(", ")}.`}
    </Text>
    {scopeChange && <ScopeChange of={scopeChange} />}
  </>
);
