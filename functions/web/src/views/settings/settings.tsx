import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { Answer } from "../../parts/answer.tsx";
import { Card } from "../../parts/card.tsx";
import { Operate } from "../../parts/operate.tsx";
import { View } from "../../parts/view.tsx";
import { CATEGORIES } from "./categories.ts";
import { Histories } from "./histories.tsx";
import { ScopeChange } from "./scope-change.tsx";
import { ONLY_PREVIEW, Setting } from "./setting.tsx";

/** What is in force, where it comes from, and what it may be. */
export default function Settings() {
  const settings = api.useQuery("get", "/api/settings/all");
  return (
    <View title="Settings">
      <Answer of={settings}>
        {(all) => (
          <>
            <div>
              <Operate
                operation="removeAllOverrides"
                title="Reset all"
                action="Reset all"
                preview={{
                  action: "Show what would change",
                  first: true,
                  load: async (_, reset) => <Resets of={await reset({ params: ONLY_PREVIEW })} />,
                }}
                submit={async (_, reset) => <Resets of={await reset({})} />}
              >
                <Text>
                  All that was changed here goes. What App Configuration or the environment says, or else the default,
                  counts again.
                </Text>
              </Operate>
            </div>
            {CATEGORIES.map((category) => (
              <Card key={category.member} title={category.title}>
                {all[category.member].map((setting) => (
                  <Setting key={setting.key} setting={setting} category={category} />
                ))}
              </Card>
            ))}
          </>
        )}
      </Answer>
      <Card title="Histories">
        <Histories />
      </Card>
    </View>
  );
}

const Resets = ({ of: { deleted, keys, scopeChange } }: { of: Schemas["RemovedOverrides"] }) => (
  <>
    <Text block>
      {keys.length === 0 ? "None was changed here." : `${deleted ? "Reset" : "To be reset"}: ${keys.join(", ")}.`}
    </Text>
    {scopeChange && <ScopeChange of={scopeChange} />}
  </>
);
