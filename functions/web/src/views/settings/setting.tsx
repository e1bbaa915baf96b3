import { Text } from "@fluentui/react-components";
import type { Call } from "../../api/calls.ts";
import { client, type Problem, type Schemas } from "../../api/client.ts";
import { CheckField, ChoiceField, NumberField, TextField } from "../../parts/fields.tsx";
import { typed } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import type { Category } from "./categories.ts";
import { ScopeChange } from "./scope-change.tsx";

type OneSetting = Schemas["Setting"];
interface Props {
  setting: OneSetting;
  category: Category;
}

/** One setting with where its value comes from. */
export function Setting({ setting, category }: Props) {
  const { key, value, source, description, environmentVariable, updatedAt, updatedBy, ignored } = setting;
  return (
    <div>
      <Text weight="semibold">{key}</Text>: {String(value)} <Text>({SOURCES[source]})</Text>
      <Text block>{description}</Text>
      <Text block size={200}>
        {environmentVariable}
        {updatedAt && (
          <>
            , changed by {updatedBy} <Instant at={updatedAt} relative />
          </>
        )}
        {ignored.map((one) => `, ${SOURCES[one.source]} is ignored: ${one.reason}`)}
      </Text>
      <Change setting={setting} category={category} />{" "}
      {source === "override" && <Reset setting={setting} category={category} />}
    </div>
  );
}

const SOURCES: Record<OneSetting["source"], string> = {
  override: "changed here",
  appConfiguration: "from App Configuration",
  environment: "from the environment",
  default: "by default",
};

function Change({ setting, category }: Props) {
  const bodyOf = (form: FormData) => ({ [setting.key]: typedValue(setting, form) });
  return (
    <Operate
      // One type for all categories: their bodies differ in the names of their members alone.
      operation={category.change as "updateFeaturesSettings"}
      title="Change"
      about={setting.key}
      action="Change"
      {...(setting.key === "watchAll" && {
        preview: {
          action: "Show what would change",
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
  if (type === "boolean")
    return <CheckField name="value" member={key} label={description} defaultChecked={value === true} />;
  if (allowed)
    return <ChoiceField name="value" member={key} label={description} options={allowed} defaultValue={String(value)} />;
  if (type !== "integer")
    return <TextField name="value" member={key} label={description} defaultValue={String(value)} />;
  const bounds =
    minimum === null || maximum === null ? {} : { min: minimum, max: maximum, hint: `${minimum} to ${maximum}` };
  return (
    <NumberField name="value" member={key} label={description} required defaultValue={String(value)} {...bounds} />
  );
}

function typedValue({ type }: OneSetting, form: FormData): OneSetting["value"] {
  if (type === "boolean") return form.has("value");
  return type === "integer" ? Number(typed(form, "value")) : typed(form, "value");
}

/**
 * The etag of the category, if the setting in it is still as it was shown.
 *
 * @throws {Problem} when somebody else has changed it.
 */
async function unchangedSince({ key, value, source }: OneSetting, { path }: Category): Promise<string> {
  const { data, error, response } = await client.GET(`/api/settings/${path}`, {});
  if (error) throw error;
  const now = (data as OneSetting[]).find((one) => one.key === key);
  if (now?.value === value && now.source === source) return response.headers.get("etag") ?? "";
  const problem: Problem = {
    type: "about:blank",
    title: "It was changed in the meantime",
    status: 412,
    detail: `${key} is ${String(now?.value)} now${now?.updatedBy ? `, by ${now.updatedBy}` : ""}. Load again to see it.`,
    instance: "",
    code: "preconditionFailed",
  };
  throw problem;
}

const scopeIn = (settings: Schemas["FeatureSetting"][]) => settings.find(({ scopeChange }) => scopeChange)?.scopeChange;

/** No state has this etag: a host of a version before, which knows no preview here, refuses in place of a reset. */
export const ONLY_PREVIEW = { query: { preview: "true" }, header: { "If-Match": '"preview"' } } as const;

function Reset({ setting: { key }, category }: Props) {
  const path = { category: category.path, key };
  return (
    <Operate
      operation="removeOverride"
      title="Reset"
      about={key}
      action="Reset"
      {...(key === "watchAll" && {
        preview: {
          action: "Show what would change",
          first: true,
          load: async (_: FormData, reset: Call<"removeOverride">) => (
            <ScopeChange of={scopeIn([(await reset({ params: { path, ...ONLY_PREVIEW } })).setting])} />
          ),
        },
      })}
      submit={(_, reset) => reset({ params: { path } })}
    >
      <Text>What App Configuration or the environment says, or else the default, counts again.</Text>
    </Operate>
  );
}
