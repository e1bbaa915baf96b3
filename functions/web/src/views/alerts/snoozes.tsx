import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { ChoiceField, TextField } from "../../parts/fields.tsx";
import { given, typed } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { SnoozeFields, snoozeOf } from "../../parts/snooze-fields.tsx";
import { FilterFields, filtersOf } from "./filter-fields.tsx";
import { filtersText, SNOOZE_FILTERS } from "./rule-words.ts";

/** What is silenced for a while. */
export function Snoozes() {
  const list = api.useInfiniteQuery("get", "/alerts/snoozes", { params: { query: { limit: 100 } } }, BY_CURSOR);
  const rules = api.useInfiniteQuery("get", "/alerts/rules", { params: { query: { limit: 100 } } }, BY_CURSOR);
  const names = Object.fromEntries(
    (rules.data?.pages ?? []).flatMap(({ items }) => items.map(({ id, name }) => [id, name])),
  );
  const columns: Column<Schemas["AlertSnooze"]>[] = [
    { title: "What", cell: ({ assetId, filters }) => whatOf(assetId, filters) },
    { title: "Rule", cell: ({ ruleId }) => (ruleId === null ? "every rule" : (names[ruleId] ?? ruleId)) },
    { title: "Reason", cell: ({ reason }) => reason },
    { title: "Until", cell: ({ until }) => <Instant at={until} /> },
    { title: "By", cell: ({ createdBy }) => createdBy },
    {
      title: "",
      cell: ({ id, assetId, filters }) => (
        <Operate
          operation="deleteAlertSnooze"
          title="End now"
          about={whatOf(assetId, filters)}
          action="End"
          appearance="transparent"
          submit={(_, end) => end({ params: { path: { snooze_id: id } } })}
        >
          <Text>It is told of again.</Text>
        </Operate>
      ),
    },
  ];
  return (
    <>
      <div>
        <NewSnooze names={names} /> <SnoozeAll names={names} />
      </div>
      <PagedTable of={list} columns={columns} keyOf={({ id }) => id} label="Snoozes" none="Nothing is silenced." />
    </>
  );
}

const whatOf = (assetId: string | null, filters: Schemas["AlertSnooze"]["filters"]): string =>
  assetId ?? (filtersText(filters) || "everything");

type Names = Record<string, string>;

function NewSnooze({ names }: { names: Names }) {
  return (
    <Operate
      operation="createAlertSnooze"
      title="Snooze an asset"
      action="Snooze"
      submit={(form, create) =>
        create({ body: { ...snoozeOf(form), ruleId: typed(form, "ruleId"), assetId: typed(form, "assetId") } })
      }
    >
      <TextField name="assetId" label="Asset" hint="Its id, such as kv-shop.secret.smtp" required />
      <ChoiceField name="ruleId" label="In the rule" options={names} />
      <SnoozeFields />
    </Operate>
  );
}

function SnoozeAll({ names }: { names: Names }) {
  return (
    <Operate
      operation="createAlertSnooze"
      title="Snooze all that fit"
      action="Snooze"
      submit={(form, create) =>
        create({
          body: { ...snoozeOf(form), filters: filtersOf(form), ...given({ ruleId: typed(form, "ruleId") }) },
        })
      }
    >
      <FilterFields of={SNOOZE_FILTERS} />
      <ChoiceField name="ruleId" label="In the rule" options={{ "": "every rule", ...names }} />
      <SnoozeFields />
    </Operate>
  );
}
