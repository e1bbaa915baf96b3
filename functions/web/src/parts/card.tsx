import { makeStyles, Subtitle2, tokens } from "@fluentui/react-components";
import { type ReactNode, useId } from "react";

const useStyles = makeStyles({
  card: {
    display: "flex",
    flexDirection: "column",
    gap: tokens.spacingVerticalS,
    minWidth: 0,
    padding: tokens.spacingHorizontalL,
    borderRadius: tokens.borderRadiusLarge,
    border: `1px solid ${tokens.colorNeutralStroke2}`,
    backgroundColor: tokens.colorNeutralBackground1,
    alignItems: "stretch",
  },
  title: { margin: 0 },
});

/** A section of a view: a box with a heading. */
export function Card({ title, children }: { title: string; children: ReactNode }) {
  const styles = useStyles();
  const id = useId();
  return (
    <section className={styles.card} aria-labelledby={id}>
      <Subtitle2 as="h2" id={id} className={styles.title}>
        {title}
      </Subtitle2>
      {children}
    </section>
  );
}
