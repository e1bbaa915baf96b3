import {
  Accordion,
  AccordionHeader,
  AccordionItem,
  AccordionPanel,
  Link,
  makeStyles,
  ProgressBar,
  Text,
  tokens,
} from "@fluentui/react-components";
import { useState } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Answer } from "../../parts/answer.tsx";

type FrameworkId = Schemas["Framework"]["id"];

const CONTROL_STATUSES = {
  pass: "passes",
  fail: "fails",
  notApplicable: "applies to nothing here",
  manual: "only a person can tell",
} as const satisfies Record<Schemas["FrameworkDetails"]["controls"][number]["status"], string>;

const useStyles = makeStyles({
  // Several lines on a narrow screen.
  header: { "& button": { paddingBlock: tokens.spacingVerticalXS } },
});

/** The frameworks with their scores, and the controls of the one that is opened. */
export function Frameworks() {
  const frameworks = api.useQuery("get", "/compliance/frameworks");
  const styles = useStyles();
  const [opened, open] = useState<FrameworkId[]>([]);
  return (
    <Answer of={frameworks}>
      {({ items }) => (
        <Accordion
          multiple
          collapsible
          openItems={opened}
          onToggle={(_, data) => open(data.openItems as FrameworkId[])}
        >
          {items.map(({ id, name, version, score, failed, controlsByStatus }) => (
            <AccordionItem key={id} value={id}>
              <AccordionHeader className={styles.header}>
                {name} {version}: {score} of 100, {controlsByStatus.fail} controls fail, {failed} violations
              </AccordionHeader>
              <AccordionPanel>
                <ProgressBar value={score / 100} aria-label={`Score of ${name}`} />
                {opened.includes(id) && <Controls framework={id} />}
              </AccordionPanel>
            </AccordionItem>
          ))}
        </Accordion>
      )}
    </Answer>
  );
}

function Controls({ framework }: { framework: FrameworkId }) {
  const details = api.useQuery("get", "/compliance/frameworks/{framework_id}", {
    params: { path: { framework_id: framework } },
  });
  return (
    <Answer of={details}>
      {({ source, controls }) => (
        <>
          <Text block>{source}</Text>
          <Link href={createHref("/compliance", { framework })}>What fails</Link>
          <ul>
            {controls.map(({ id, title, status, passed, failed, exempted }) => (
              <li key={id}>
                <strong>{id}</strong> {title}: {CONTROL_STATUSES[status]}
                {passed + failed > 0 && `, ${passed} pass, ${failed} fail`}
                {exempted > 0 && `, ${exempted} exempted`}
              </li>
            ))}
          </ul>
        </>
      )}
    </Answer>
  );
}
