// Shows the document of this very service. No validator badge: it would ask another host. Nothing can be executed
// before "Try it out" was pressed: the stores are real, and none can be deleted. No colours: with them, 20,000 stores
// stop the browser for minutes.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  tryItOutEnabled: false,
  syntaxHighlight: false,
  validatorUrl: null,
  // The operations come first; then the table of errors that any request can get, with the sentence above it.
  onComplete: () => {
    const table = document.querySelector("#reference .info table");
    const errors = document.createElement("div");
    errors.className = "info wrapper";
    errors.innerHTML = '<div class="markdown renderedMarkdown"></div>';
    errors.firstChild.append(table.previousElementSibling, table);
    document.querySelector("#reference .swagger-ui").append(errors);
  },
});
