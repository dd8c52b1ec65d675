# What `pip install .` puts beside the Python modules: the command, the corpus, and the package once more for Pythons other than the one it
# is installed in (drivers/python/elsewhere).
set(data gradledger/data)
if(GRADLEDGER_COMMAND_MADE)
  install(PROGRAMS ${GRADLEDGER_COMMAND_MADE} DESTINATION ${data}/bin COMPONENT wheel)
else()
  install(TARGETS gradledger RUNTIME DESTINATION ${data}/bin COMPONENT wheel)
endif()
install(DIRECTORY scenarios DESTINATION ${data} COMPONENT wheel)
install(DIRECTORY drivers/scenarios DESTINATION ${data}/drivers COMPONENT wheel)
install(DIRECTORY drivers/python/elsewhere/ DESTINATION ${data}/python COMPONENT wheel FILES_MATCHING PATTERN "*.py")
