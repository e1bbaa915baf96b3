import { Text } from "@fluentui/react-components";
import type { Call } from "../../api/calls.ts";
import { client, type Problem, type Schemas } from "../../api/client.ts";
import { ChoiceField, NumberField, SwitchField, TextField } from "../../parts/fields.tsx";
import { typed } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import type { Category } from "./categories.ts";
import { labelOf, unitOf } from "./labels.ts";
import { ScopeChange } from "./scope-change.tsx";

type OneSetting = Schemas["Setting"];
interface Props {
  setting: OneSetting;
  category: Category;
}

/** One setting: its value, where the value comes from, and its key. */
export function Setting({ setting, category }: Props) {
  const { key, value, source, description, environmentVariable, updatedAt, updatedBy, ignored } = setting;
  return (
    <div>
      <Text weight="semibold">{labelOf(key)}</Text>: {valueText(key, value)} <Text>({SOURCES[source]})</Text>
      <Text block>{description}</Text>
      <Text block size={200}>
        {key}, {environmentVariable}
        {updatedAt && (
          <>
            , last modified by {updatedBy} <Instant at={updatedAt} relative />
          </>
        )}
        {ignored.map((one) => `. Ignored value (${SOURCES[one.source]}): ${one.reason}`)}
      </Text>
      <Edit setting={setting} category={category} />{" "}
      {source === "override" && <Reset setting={setting} category={category} />}
    </div>
  );
}

const SOURCES: Record<OneSetting["source"], string> = {
  override: "set here",
  appConfiguration: "from App Configuration",
  environment: "from an environment variable",
  default: "default",
};

function valueText(key: string, value: OneSetting["value"]): string {
  if (typeof value === "boolean") return value ? "On" : "Off";
  return typeof value === "number" ? `${value.toLocaleString()} ${unitOf(key)}` : value;
}

function Edit({ setting, category }: Props) {
  const bodyOf = (form: FormData) => ({ [setting.key]: typedValue(setting, form) });
  return (
    <Operate
      // The operations of all categories have the same shape; only the members of their bodies differ.
      operation={category.change as "updateFeaturesSettings"}
      title="Edit"
      about={labelOf(setting.key)}
      action="Save"
      {...(setting.key === "watchAll" && {
        preview: {
          action: "Preview changes",
          first: true,
          load: async (form: FormData, change: Call<"updateFeaturesSettings">) => (
            <ScopeChange of={scopeIn(await change({ params: { query: { preview: "true" } }, body: bodyOf(form) }))} />
          ),
        },
      })}
      submit={async (form, change) => {
        const etag = await unchangedSince(setting, category);
        return await change({ params: { header: { "If-Match": etag } }, body: bodyOf(form) });
      }}
    >
      <Value setting={setting} />
    </Operate>
  );
}

function Value({ setting: { key, type, value, minimum, maximum, allowed, description } }: { setting: OneSetting }) {
  const field = { name: "value", member: key, label: labelOf(key), hint: description };
  if (type === "boolean") return <SwitchField {...field} defaultChecked={value === true} />;
  if (allowed) return <ChoiceField {...field} options={allowed} defaultValue={String(value)} />;
  if (type !== "integer") return <TextField {...field} defaultValue={String(value)} />;
  const bounds =
    minimum === null || maximum === null
      ? {}
      : { min: minimum, max: maximum, hint: `${minimum} to ${maximum}. ${description}` };
  return (
    <NumberField
      {...field}
      label={`${labelOf(key)} (${unitOf(key)})`}
      required
      defaultValue={String(value)}
      {...bounds}
    />
  );
}

function typedValue({ type }: OneSetting, form: FormData): OneSetting["value"] {
  if (type === "boolean") return form.has("value");
  return type === "integer" ? Number(typed(form, "value")) : typed(form, "value");
}

/** Returns the etag of the category.
 *
 * @throws {Problem} if another user changed the setting since it was shown.
 */
async function unchangedSince({ key, value, source }: OneSetting, { path }: Category): Promise<string> {
  const { data, error, response } = await client.GET(`/api/settings/${path}`, {});
  if (error) throw error;
  const now = (data as OneSetting[]).find((one) => one.key === key);
  if (now?.value === value && now.source === source) return response.headers.get("etag") ?? "";
  const problem: Problem = {
    type: "about:blank",
    title: "Another user changed this setting",
    status: 412,
    detail: `${labelOf(key)} is now ${now ? valueText(key, now.value) : "unknown"}${now?.updatedBy ? `, set by ${now.updatedBy}` : ""}. Reload to see the current value.`,
    instance: "",
    code: "preconditionFailed",
  };
  throw problem;
}

const scopeIn = (settings: Schemas["FeatureSetting"][]) => settings.find(({ scopeChange }) => scopeChange)?.scopeChange;

/** An etag that never matches: a host of an earlier version, without previews, then rejects the request instead of resetting. */
export const ONLY_PREVIEW = { query: { preview: "true" }, header: { "If-Match": '"preview"' } } as const;

function Reset({ setting: { key }, category }: Props) {
  const path = { category: category.path, key };
  return (
    <Operate
      operation="removeOverride"
      title="Reset"
      about={labelOf(key)}
      action="Reset setting"
      {...(key === "watchAll" && {
        preview: {
          action: "Preview changes",
          first: true,
          load: async (_: FormData, reset: Call<"removeOverride">) => (
            <ScopeChange of={scopeIn([(await reset({ params: { path, ...ONLY_PREVIEW } })).setting])} />
          ),
        },
      })}
      submit={(_, reset) => reset({ params: { path } })}
    >
      <Text>The value from App Configuration or the environment variable, or else the default, applies again.</Text>
    </Operate>
  );
}
