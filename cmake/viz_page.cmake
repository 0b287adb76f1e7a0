# cmake -DPAGE=... -DD3=... -DDAGRE=... -DOUT=... -P cmake/viz_page.cmake: joins the sources of the page of `xhat viz` and its libraries to
# one text, in a C++ file.
file(READ ${PAGE}/index.html html)
file(READ ${D3} d3)
file(READ ${DAGRE} dagre)
# The layout runs in a worker of the page, which is made of text and is no module.
string(REGEX REPLACE "export const { layout, Graph } = dagre;[ \n]*$" "" dagre "${dagre}")
# netron 9.3.3 asks where a line goes that ends there.
string(REPLACE "node0d.out[0].wNode === node1d.out[0].wNode" "node0d.out[0] && node0d.out[0].wNode === node1d.out[0]?.wNode" dagre "${dagre}")
if(dagre MATCHES "\nexport ")
  message(FATAL_ERROR "${DAGRE} is not the layout library that the page knows: it exports something else than layout and Graph")
endif()
set(script "")
foreach(name IN ITEMS data diff panels passes graph plots main)
  file(READ ${PAGE}/${name}.js text)
  string(APPEND script "${text}\n")
endforeach()
file(READ ${PAGE}/page.css css)
file(READ ${PAGE}/licences.txt licences)
foreach(part IN ITEMS css licences d3 dagre script)
  string(REPLACE "{{${part}}}" "${${part}}" html "${html}")
endforeach()
file(WRITE ${OUT} "#include \"runtime/viz/viz_page.h\"\n\nnamespace xhat {\n\nstd::string viz_page() {\n  return R\"xhat_page(${html})xhat_page\";\n}\n\n}  // namespace xhat\n")
